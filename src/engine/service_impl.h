// A service's thread and what it works on. service.cpp takes requests in and tells about them; service_steps.cpp
// computes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "engine/answer.h"
#include "engine/attention_cost.h"
#include "engine/embedding.h"
#include "engine/engine_impl.h"
#include "engine/kv_choices.h"
#include "engine/kv_use.h"
#include "kv/prefix_index.h"
#include "kv/prefix_states.h"
#include "sched/scheduler.h"
#include <godwit/service.h>

namespace godwit {

// A request; it belongs to the service's thread once it is submitted.
struct Service::Work {
  uint64_t id = 0;
  ServiceRequest request;
  ServiceCallbacks callbacks;
  AnswerWriter writer;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  std::vector<TokenId> tokens;                    // prompt and answer
  std::string space;                              // of the prefix cache: of blocks, and
  std::string state_space;                        // ... of states, where its rules have such
  KvChoice kv;                                    // its KV method, and
  std::shared_ptr<const KvRetentionRules> rules;  // ... what that means; null: every entry stays
  const Team* team = nullptr;
  uint64_t team_sequence = 0;         // what the other ranks call it
  std::optional<KvUse> dropped = {};  // over ranks: what its policy has left of it; none: all
  std::unique_ptr<KvSequence> sequence = nullptr;
  std::unique_ptr<KvRetention> retention = nullptr;
  EmbeddingSum embedding = {};
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();
  int cached = 0;
  double waited_seconds = -1;  // not yet begun
  RequestStatus told = {};     // by on_progress
  RankDegrees ranks = {};      // see ServiceAnswer

  RequestStatus status() const;
};

struct Service::Impl final : SchedMemory {
  struct OverRanks;  // service_ranks.h

  Impl(std::shared_ptr<Engine::Impl> e, const ServiceOptions& o, KvChoices c);
  ~Impl() override;

  void make_caches();
  SchedOptions sched_options() const {
    SchedOptions s;
    s.most_running = static_cast<size_t>(options.most_running);
    s.most_waiting = SIZE_MAX;  // submit() counts
    s.step_tokens = static_cast<size_t>(engine->step_tokens());
    s.step_cost = static_cast<double>(s.step_tokens);
    s.attention_tokens = attention_tokens(engine->model->config());
    s.block_tokens = static_cast<size_t>(engine->pool->format().page_tokens);
    return s;
  }

  RankDegrees ranks_for(const RankDegrees& asked) const {
    const RankOptions& own = engine->options.rank_options;
    return {asked.prefill > 0 ? asked.prefill : own.prefill_ranks, asked.decode > 0 ? asked.decode : own.decode_ranks};
  }
  Status check(const RankDegrees& asked, const KvChoice& kv) const;
  Status no_longer(int ranks) const;  // may be asked for

  // --- the service's thread
  void run(const std::stop_token& stop);
  void take_submitted();
  void step();
  struct Rows {
    Work* work;
    size_t begin, count;
    bool samples;  // the last row's logits give the next token
  };
  struct Said {  // by a request in this step; told when no lock is held
    uint64_t id;
    Piece piece;
    std::optional<FinishReason> finish;
    std::string error;
  };
  void order_by_pages(std::vector<Rows>& list) const;
  void compute(Phase phase, std::span<const Rows> list, std::vector<Said>& said);
  void forward(Phase phase, std::vector<Rows> list, std::vector<Said>& said);
  bool prepare(const Rows& rows);
  bool finish(Phase phase, const Rows& rows);
  void make_way(const Work& work);
  void postpone(Work& work, std::vector<Said>& said);
  std::string does_not_fit() const;
  Said sample(Work& work, std::span<const float> logits);
  void tell(const Said& said);
  void tell_progress(Work& work) const;
  void end(uint64_t id, FinishReason finish, std::string error = {});
  void schedule(Work& work);
  bool ranks_are_lost() const;
  void lose_ranks();
  Status go_on_alone(const std::string& why);
  void end_if_in_vain(uint64_t id);
  void lose(const Status& why);  // all requests, those to come included

  // Of this process, or of all ranks.
  SchedMemory& memory();
  static void begins(Work& work) {
    if (work.waited_seconds < 0)
      work.waited_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - work.submitted).count();
    work.embedding = {};
  }

  // --- SchedMemory, with engine->mutex held
  // An embedding is made of every token, so none may be skipped.
  // A request computes its last token itself, and all that its policy or the prefill method must see.
  size_t shareable(const Work& work) const {
    if (!options.prefix_cache || work.request.embed) return 0;
    const size_t tokens = work.prompt->size(), own = std::max<size_t>(tail_rows(), 1);
    return std::min(tokens - std::min(tokens, own), work.rules ? work.rules->shareable(tokens) : tokens);
  }
  // A request whose policy minds how tokens are cut into steps takes those of a Session.
  size_t piece_tokens(const Work& work) const {
    return work.rules && work.rules->by_pieces() ? static_cast<size_t>(engine->options.prefill_chunk) : 0;
  }
  std::span<const int32_t> sharing(const Work& work) const { return std::span(*work.prompt).first(shareable(work)); }
  // So much of its prompt may come from a state that another of the same rules left, or be left as one.
  size_t resumable(const Work& work) const {
    if (work.state_space.empty()) return 0;
    const size_t tokens = work.prompt->size(), own = std::max<size_t>(tail_rows(), 1);
    return tokens - std::min(tokens, own);
  }
  // One that goes further than the blocks do; or null.
  const PrefixStates::State* state_for(const Work& work) const {
    const auto* state = states->find(work.state_space, std::span(*work.prompt).first(resumable(work)));
    return state != nullptr && state->tokens > prefixes->matched(work.space, sharing(work)) ? state : nullptr;
  }
  size_t tail_rows() const { return static_cast<size_t>(engine->prefill_planner->tail_rows()); }
  size_t cached(uint64_t id) const override {
    const Work& work = *works.at(id);
    const auto* state = state_for(work);
    return state != nullptr ? state->tokens : prefixes->matched(work.space, sharing(work));
  }
  bool fits(uint64_t id, size_t tokens) const override {
    const KvShape shape = engine->model->kv_shape();
    const KvPool& pool = *engine->pool;
    const Work& work = *works.at(id);
    const auto step = static_cast<size_t>(engine->options.prefill_chunk);
    const size_t open = work.rules ? work.rules->residence(shape).most_slots(tokens) : tokens;
    size_t bytes = 0;
    for (int layer = 0; layer < shape.layers; ++layer) {
      const KvFormat& format = pool.format(layer);
      bytes += static_cast<size_t>(shape.kv_heads) *
               (format.demotes ? format.most_bytes_demoting(tokens + 1, open + 1) : format.most_bytes(open + 1, step));
    }
    const size_t free = pool.budget_bytes() - pool.bytes_in_use();
    return bytes <= free || bytes <= free + prefixes->releasable_bytes() + states->releasable_bytes();
  }
  size_t begin(uint64_t id) override {
    Work& work = *works.at(id);
    begins(work);
    size_t found = 0;
    if (const auto* state = state_for(work)) {
      states->use(*state);
      work.sequence = state->sequence->fork();
      work.retention = std::make_unique<KvRetention>(*state->retention, *work.sequence);
      found = state->tokens;
    } else {
      work.sequence = std::make_unique<KvSequence>(*engine->pool, engine->model->kv_shape());
      found = prefixes->share(work.space, sharing(work), *work.sequence);
    }
    if (work.rules && !work.retention) {
      work.retention = std::make_unique<KvRetention>(work.rules, *work.sequence);
      if (found > 0) work.retention->skip(static_cast<int32_t>(found));
    }
    if (work.writer.tokens() == 0) work.cached = static_cast<int>(found);
    return found;
  }
  bool reserve(uint64_t id, size_t tokens) override { return make_room(*works.at(id), tokens); }
  void release(uint64_t id) override {
    works.at(id)->retention.reset();
    works.at(id)->sequence.reset();
  }
  bool make_room(Work& work, size_t tokens) {
    KvOutcome outcome = work.sequence->append(static_cast<int>(tokens));
    if (!outcome && release_prefixes(outcome.missing_pages) > 0)
      outcome = work.sequence->append(static_cast<int>(tokens));
    return static_cast<bool>(outcome);
  }
  // A state serves one method only, so these go first.
  size_t release_prefixes(size_t pages) {
    const size_t freed = states->release(pages);
    return freed < pages ? freed + prefixes->release(pages - freed) : freed;
  }

  std::shared_ptr<Engine::Impl> engine;
  const ServiceOptions options;
  const KvChoices choices;
  Scheduler scheduler;
  std::optional<PrefixIndex> prefixes;
  std::optional<PrefixStates> states;
  std::unique_ptr<OverRanks> over_ranks;  // null: this process alone
  std::map<uint64_t, std::unique_ptr<Work>> works;
  bool lost = false;              // and with ranks everything
  size_t postponed = 0;           // in this step
  std::atomic<bool> spread;       // over ranks; no longer once these are lost and this process goes on
  std::vector<float> logit_rows;  // of the last rows, where they are sampled

  mutable std::mutex mutex;  // of all below; never held while a callback runs or a step is computed
  std::condition_variable wake;
  std::vector<std::unique_ptr<Work>> submitted;
  std::set<uint64_t> cancelled;
  uint64_t next_id = 1;
  ServiceStats stats;
  std::map<uint64_t, RequestStatus> statuses;  // of works
  Status status;                               // once ranks are lost: why

  std::jthread thread;
};

}  // namespace godwit
