// An engine's part in a job of several ranks. Every rank has one beside its engine: the leader's (rank 0) sends
// commands and takes part in what they ask for; the others' are told by Ranks::follow().
//
// Every rank has a sequence for each of rank 0's, which holds the tokens that this rank keeps (dist/shard.h) and whose
// next_position() is that of them all. Calls are made with the engine's mutex held.
#pragma once

#include <map>

#include "dist/ring_choice.h"
#include "engine/engine_impl.h"
#include "engine/ranks_impl.h"

namespace godwit {

// Where the time of attention over ranks went, and what was sent, of one rank.
struct RankReport {
  dist::RingTimes times;
  dist::Traffic slots, pages, queries, states;
};

class Team {
 public:
  // On every rank, with what its engine has loaded; ranks that would compute differently are refused.
  static Result<std::unique_ptr<Team>> make(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id);
  ~Team();

  int size() const { return ranks_.transport.size(); }
  int32_t step_tokens() const;
  uint64_t kv_bytes(const KvSequence& sequence) const;  // on all ranks
  std::string description() const;                      // "pass-kv over mpi"

  // --- rank 0
  uint64_t create(KvSequence& sequence);
  uint64_t fork(uint64_t sequence, KvSequence& copy);
  void truncate(uint64_t sequence, int32_t end_position);
  void drop(uint64_t sequence);

  struct Step {
    uint64_t sequence = 0;
    int32_t begin = 0;
    std::span<const TokenId> tokens;
    Phase phase = Phase::kPrefill;
    int32_t first_logits = 0;  // row
  };
  using OnLogits = std::function<void(int32_t row, std::span<const float> logits)>;
  // Computes the tokens and hands out the logits of rows from first_logits on, in order.
  Status step(const Step& step, const OnLogits& on_logits);
  Result<std::vector<RankReport>> report();
  // By the formulas: bytes of a layer of a step, all ranks together, the way it would go.
  dist::RingBytes formula_bytes(int32_t begin, int32_t end) const;
  dist::RingMode mode_of(int32_t begin, int32_t end) const;
  dist::RingPrediction predict(int32_t begin, int32_t end) const;
  const dist::RingCosts& costs() const { return costs_; }
  dist::RingMode last_mode() const { return last_mode_; }

  // --- the others
  Status obey(const RankCommand& command, std::span<const std::byte> extra);

 private:
  Team(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id) : engine_(engine), ranks_(ranks), id_(id) {}

  bool leads() const { return ranks_.transport.rank() == 0; }
  Status tell(RankCommand command, std::span<const std::byte> extra = {});
  Status compute(const RankCommand& command, std::span<const TokenId> tokens);
  Status make_room(KvSequence& sequence, dist::Stretch step);
  Status send_logits(const RankCommand& command);
  Status take_logits(const RankCommand& command, const OnLogits& on_logits);
  // Calls each(rank, first row of that rank, row of the step, rows) for all that logits are wanted of, in order.
  Status each_logits(const RankCommand& command,
                     const std::function<Status(int rank, int32_t row, int32_t step_row, int32_t count)>& each) const;
  std::span<const float> own_logits(int32_t row, int32_t count);
  RankReport own_report() const;

  Engine::Impl& engine_;
  Ranks::Impl& ranks_;
  const uint32_t id_;
  std::unique_ptr<dist::RingAttention> ring_;
  dist::RingCosts costs_;
  dist::RingMode last_mode_ = dist::RingMode::kPassKv;
  std::map<uint64_t, KvSequence*> sequences_;
  std::map<uint64_t, std::unique_ptr<KvSequence>> owned_;  // on all but rank 0
  uint64_t last_sequence_ = 0;
  std::vector<float> logits_;
  dist::Frame frame_;
};

// What cannot work over ranks, by name; and the options as they travel.
Status check_rank_options(const EngineOptions& options);
std::string rank_options_text(const EngineOptions& options);
Result<EngineOptions> rank_options_from(std::string_view text);

}  // namespace godwit
