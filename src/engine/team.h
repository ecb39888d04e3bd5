// An engine's part in a job of several ranks. Every rank has one beside its engine: the leader's (rank 0) sends
// commands and takes part in what they ask for; the others' are told by Ranks::follow().
//
// Every rank has a sequence for each of rank 0's, which holds the tokens that this rank keeps (dist/shard.h) and whose
// next_position() is that of them all. Calls are made with the engine's mutex held.
#pragma once

#include <map>

#include "dist/ring_choice.h"
#include "engine/engine_impl.h"
#include "engine/kv_use.h"
#include "engine/ranks_impl.h"
#include <godwit/service.h>

namespace godwit {

// Where the time of attention over ranks went, and what was sent, of one rank.
struct RankReport {
  dist::RingTimes times;
  double cpu_s = 0, waited_cpu_s = 0;  // of the whole process; of that, waiting for messages
  dist::Traffic slots, pages, queries, states;
};

// What a sequence is to have.
struct SequenceTerms {
  RankDegrees ranks = {};                                   // 0: nobody minds
  std::shared_ptr<const KvRetentionRules> rules = nullptr;  // null: every entry stays
};

class Team {
 public:
  // On every rank, with what its engine has loaded and the job's mutex held; ranks that would compute differently are
  // refused.
  static Result<std::unique_ptr<Team>> make(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id);
  ~Team();

  int size() const { return ranks_.transport.size(); }
  SequenceTerms terms() const {  // the engine's own
    const RankOptions& options = engine_.options.rank_options;
    return {{options.prefill_ranks, options.decode_ranks}, engine_.retention};
  }
  // The most tokens of a step where all ranks take part and are alike; those of a sequence's next step, as its ranks'
  // shares are now; and as many as give so many rows.
  int32_t step_tokens() const;
  int32_t step_tokens(uint64_t sequence) const { return tokens_of(sequence, engine_.options.prefill_chunk); }
  int32_t tokens_of(uint64_t sequence, int32_t rows) const {
    return shards_of(sequences_.at(sequence)).step_tokens(rows);
  }
  int32_t rows_of(uint64_t sequence, int32_t tokens) const {  // of one rank, at most
    return shards_of(sequences_.at(sequence)).most_rows(tokens);
  }
  uint64_t kv_bytes(const KvSequence& sequence) const;  // on all ranks, while nothing was dropped
  // Rank 0's part of a sequence that is to be created.
  std::unique_ptr<KvSequence> next_share() const { return make_share(last_sequence_ + 1, size()); }
  Status status() const { return ranks_.transport.status(); }
  std::string description() const;  // "pass-kv over mpi"
  bool outlives_ranks() const { return ranks_.transport.outlives_ranks(); }

  // --- rank 0
  // Policies beside the engine's that terms may name: every rank makes them now, or this fails.
  Status allow(std::span<const std::string> policies);
  uint64_t create(KvSequence& sequence) { return create(sequence, terms()); }
  uint64_t create(KvSequence& sequence, const SequenceTerms& terms);
  uint64_t fork(uint64_t sequence, KvSequence& copy);
  // A new sequence that begins with the first tokens of another; `copy` is a fork of it, and is cut here. REQUIRES: the
  // other is whole, and the rules' shareable() allows it.
  uint64_t create_from(uint64_t sequence, int32_t tokens, KvSequence& copy, const SequenceTerms& terms);
  void truncate(uint64_t sequence, int32_t end_position);
  void drop(uint64_t sequence);
  KvUse use(uint64_t sequence);                                                       // on all ranks
  bool whole(uint64_t sequence) const { return !sequences_.at(sequence).compact(); }  // nothing was ever dropped
  // The least number of tokens that truncate() may leave without changing what the rest would have been.
  int32_t shortest_exact(uint64_t sequence) const;

  // Room on all ranks for the next tokens, or kExhausted and nothing has changed.
  Status reserve(uint64_t sequence, int32_t tokens);
  struct Room {  // for a new sequence of so many tokens, of which a head has so many entries at most
    int32_t tokens = 0, entries = 0;
    int degree = 0;
  };
  // Whether it would be there, wherever the sequence begins, if those of `droppable` were gone. Pages that several of
  // them share do not count.
  bool has_room(const Room& room, std::span<const uint64_t> droppable);

  // Between steps: the ranks that a prompt of so many tokens, which is next, is to have, and those of an answer. Keys
  // and values move there, or kExhausted and nothing has changed. Where neither was asked for, a prompt has those that
  // are predicted to be quickest, and an answer those of its prompt.
  Status fit_prompt(uint64_t sequence, int32_t tokens);
  Status fit_answer(uint64_t sequence);
  // After kExhausted: whether the sequence now has more ranks, nobody having asked for so few.
  bool widen(uint64_t sequence);
  int quickest_degree(int32_t begin, int32_t end) const;
  double predict_prompt(int32_t begin, int32_t end, int degree) const;  // seconds
  int degree(uint64_t sequence) const { return sequences_.at(sequence).degree; }
  int last_degree(Phase phase) const { return phase == Phase::kPrefill ? last_prefill_ : last_decode_; }

  // One sequence's part of a step.
  struct Part {
    uint64_t sequence = 0;
    int32_t begin = 0;
    std::span<const TokenId> tokens;
    int32_t first_logits = 0;  // row; behind the last: none
    bool prompt_ends = false;
    // kExhausted: memory is short, for its tokens, of which none is computed then, or for what its policy drops.
    Status outcome = {};
  };
  // Whether a look of its policy may drop entries in pages that another sequence has.
  bool may_copy(const Part& part) const {
    const Member& member = sequences_.at(part.sequence);
    const int rows = static_cast<int>(part.tokens.size());
    return member.retention && member.shared_end > 0 &&
           (member.retention->looks_before(rows) || member.retention->looks_after(rows, part.prompt_ends));
  }
  using OnLogits = std::function<void(size_t part, int32_t row, std::span<const float> logits)>;
  // Computes the tokens and hands out the logits of rows from first_logits on, in order within a part, when outcomes
  // are known. Room that was not reserved is taken. Returns the first outcome that is not well.
  Status step(Phase phase, std::span<Part> parts, const OnLogits& on_logits);
  Result<std::vector<RankReport>> report();
  // By the formulas: bytes of a layer of a step, all ranks together, the way it would go with such shares.
  dist::RingBytes formula_bytes(int32_t begin, int32_t end, const dist::Shares& shares) const;
  dist::RingMode mode_of(int32_t begin, int32_t end, int degree = 0, int together = 1) const;
  dist::RingPrediction predict(int32_t begin, int32_t end, int degree = 0, int together = 1) const;
  const dist::RingCosts& costs() const { return costs_; }
  void set_costs(const dist::RingCosts& costs) { costs_ = costs; }
  const dist::Shares& shares() const { return shares_; }  // of the next step

  // --- the others
  Status obey(const RankCommand& command, std::span<const std::byte> extra);

 private:
  Team(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id)
      : engine_(engine), ranks_(ranks), id_(id), peers_(ranks) {}

  bool leads() const { return ranks_.transport.rank() == 0; }
  Status tell(RankCommand command, std::span<const std::byte> extra = {});
  struct Member {
    KvSequence* sequence = nullptr;
    int first = 0, degree = 0;  // see dist::Shards
    RankDegrees wants = {};
    mutable int32_t shared_end = 0;                    // pages up to this position may be another's, too
    std::unique_ptr<KvSequence> owned;                 // on all but rank 0
    std::unique_ptr<KvRetention> retention = nullptr;  // null: every entry stays

    bool compact() const { return retention && !retention->whole(); }
  };
  // The others, as retention sees them.
  struct Peers final : KvPeers {
    explicit Peers(Ranks::Impl& job) : ranks(job) {}
    int rank() const override { return ranks.transport.rank(); }
    Status gather(const Status& well, std::span<const std::byte> mine,
                  std::vector<std::vector<std::byte>>& all) override;
    Status agree(const Status& mine) override { return ranks.agree(mine); }
    Ranks::Impl& ranks;
  };
  // Attention over ranks, and whoever watches it: each the rows of its part that are here.
  struct WatchedAttention final : LayerAttention {
    struct Watch {
      KvRetention* by;
      int64_t row_begin, row_end;
    };
    explicit WatchedAttention(LayerAttention& attention) : ring(attention) {}
    void attend(const LayerCall& call) override;
    LayerAttention& ring;
    std::vector<Watch> watches;
  };
  struct Wanted {  // logits of one row
    size_t part = 0;
    int32_t step_row = 0;
    int rank = 0;
    int32_t row = 0;  // on that rank
  };

  struct Lies {  // a sequence and who keeps what of it
    const KvSequence* sequence;
    dist::Shards shards;
  };

  dist::Shards shards_of(const Member& member) const;
  // Whichever ranks they are, and as if all were alike: what is measured at the opening says no more.
  dist::Shards shards_of(int degree) const;
  Status measure_passes();
  size_t rank_bytes(const Room& room) const;
  Status share(uint64_t sequence, int degree);
  Status reshare(Member& member, int degree);
  Status move_segment(int layer, int32_t segment, const Lies& from, const Lies& to);
  Member& add(uint64_t id, KvSequence& sequence, int first, int degree);
  void keep_to(Member& member, const std::shared_ptr<const KvRetentionRules>& rules);
  Status make_policies(std::string_view list);
  Result<std::shared_ptr<const KvRetentionRules>> rules_from(std::span<const std::byte> text) const;
  int first_of(uint64_t id) const;  // rank at which a new sequence begins
  std::unique_ptr<KvSequence> make_share(uint64_t id, int degree) const;
  Status make_room(const RankPart& part);
  bool may_lack_memory(const Member& member, int32_t end) const;
  void forget(Member& member, int32_t end_position);
  Member& copy(const Member& from, uint64_t id, KvSequence& sequence);
  Member& copy_beginning(const Member& from, uint64_t id, KvSequence& sequence, int32_t tokens,
                         const std::shared_ptr<const KvRetentionRules>& rules);
  Result<KvUse> gather_use(const KvSequence& sequence);
  Status check_room(const Room& room, std::span<const uint64_t> droppable);
  // A step, on every rank: what is short of memory before it is left out, and outcomes (by part, as told) say so.
  Status compute(Phase phase, std::vector<RankPart>& parts, std::vector<TokenId>& tokens,
                 std::vector<Status>& outcomes);
  Status begin_part(const RankPart& part);
  Status forward(Phase phase, std::span<const RankPart> parts, std::span<const TokenId> tokens);
  bool tells_speeds(Phase phase, std::span<const RankPart> parts) const;
  Status send_logits(std::span<const RankPart> parts);
  Status take_logits(std::span<const RankPart> parts, const OnLogits& on_logits);
  // Calls each(rows) for all rows that logits are wanted of: of one rank, as many as fit.
  Status each_logits(std::span<const RankPart> parts,
                     const std::function<Status(std::span<const Wanted> rows)>& each) const;
  std::span<const float> own_logits(std::span<const Wanted> rows);
  RankReport own_report() const;

  Engine::Impl& engine_;
  Ranks::Impl& ranks_;
  const uint32_t id_;
  bool open_ = false;  // on all ranks
  Peers peers_;
  std::unique_ptr<dist::RingAttention> ring_;
  dist::RingCosts costs_;
  dist::RingMode last_mode_ = dist::RingMode::kPassKv;
  int last_prefill_ = 0, last_decode_ = 0;
  // The same on every rank: they change at the end of a step, from what all have heard.
  dist::Shares speeds_, shares_;
  std::map<uint64_t, Member> sequences_;
  std::map<std::string, NamedKvPolicy, std::less<>> policies_;  // as they are written
  uint64_t last_sequence_ = 0;
  std::vector<float> logits_;
  dist::Frame frame_;
};

// What cannot work over ranks, by name; and the options as they travel.
Status check_rank_options(const EngineOptions& options);
std::string rules_text(const KvRetentionRules* rules);  // null: empty
std::string rank_options_text(const EngineOptions& options);
Result<EngineOptions> rank_options_from(std::string_view text);

}  // namespace godwit
