// A service's thread and what it works on. service.cpp takes requests in and tells about them; service_steps.cpp
// computes.
#pragma once

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
#include "kv/prefix_index.h"
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
  std::vector<TokenId> tokens;  // prompt and answer
  std::unique_ptr<KvSequence> sequence;
  std::string space;  // of the prefix cache
  const Team* team = nullptr;
  uint64_t team_sequence = 0;  // what the other ranks call it
  EmbeddingSum embedding = {};
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();
  int cached = 0;
  double waited_seconds = -1;  // not yet begun
  RequestStatus told = {};     // by on_progress

  RequestStatus status() const;
};

struct Service::Impl final : SchedMemory {
  struct OverRanks;  // service_ranks.h

  Impl(std::shared_ptr<Engine::Impl> e, const ServiceOptions& o);
  ~Impl() override;

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
  void compute(Phase phase, std::span<const Rows> list, std::vector<Said>& said);
  void forward(Phase phase, std::span<const Rows> list, std::vector<Said>& said);
  Said sample(Work& work, std::span<const float> logits);
  void tell(const Said& said);
  void tell_progress(Work& work) const;
  void end(uint64_t id, FinishReason finish, std::string error = {});
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
  bool looks_back(const Work& work) const { return options.prefix_cache && !work.request.embed; }
  // A request computes its last token itself.
  std::span<const int32_t> shareable(const Work& work) const {
    return std::span(*work.prompt).first(work.prompt->size() - 1);
  }
  size_t cached(uint64_t id) const override {
    const Work& work = *works.at(id);
    return looks_back(work) ? prefixes->matched(work.space, shareable(work)) : 0;
  }
  bool fits(uint64_t, size_t tokens) const override {
    const KvShape shape = engine->model->kv_shape();
    const KvPool& pool = *engine->pool;
    const size_t bytes = pool.format().most_bytes(tokens + 1, static_cast<size_t>(engine->options.prefill_chunk)) *
                         static_cast<size_t>(shape.layers * shape.kv_heads);
    const size_t free = pool.budget_bytes() - pool.bytes_in_use();
    return bytes <= free || bytes <= free + prefixes->releasable_bytes();
  }
  size_t begin(uint64_t id) override {
    Work& work = *works.at(id);
    work.sequence = std::make_unique<KvSequence>(*engine->pool, engine->model->kv_shape());
    begins(work);
    if (!looks_back(work)) return 0;
    const size_t found = prefixes->share(work.space, shareable(work), *work.sequence);
    if (work.writer.tokens() == 0) work.cached = static_cast<int>(found);
    return found;
  }
  bool reserve(uint64_t id, size_t tokens) override {
    KvSequence& sequence = *works.at(id)->sequence;
    KvOutcome outcome = sequence.append(static_cast<int>(tokens));
    if (!outcome && prefixes->release(outcome.missing_pages) > 0) outcome = sequence.append(static_cast<int>(tokens));
    return static_cast<bool>(outcome);
  }
  void release(uint64_t id) override { works.at(id)->sequence.reset(); }

  std::shared_ptr<Engine::Impl> engine;
  const ServiceOptions options;
  Scheduler scheduler;
  std::optional<PrefixIndex> prefixes;
  std::unique_ptr<OverRanks> over_ranks;  // null: this process alone
  std::map<uint64_t, std::unique_ptr<Work>> works;

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
