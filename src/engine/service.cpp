#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <set>
#include <thread>

#include "engine/answer.h"
#include "engine/attention_cost.h"
#include "engine/embedding.h"
#include "engine/engine_impl.h"
#include "engine/kv_use.h"
#include "engine/team.h"
#include "kv/prefix_index.h"
#include "sched/scheduler.h"
#include <godwit/service.h>

namespace godwit {
namespace {

struct Work {  // belongs to the service's thread once it is submitted
  uint64_t id = 0;
  ServiceRequest request;
  ServiceCallbacks callbacks;
  AnswerWriter writer;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  std::vector<TokenId> tokens;  // prompt and answer
  std::unique_ptr<KvSequence> sequence;
  std::string space;  // of the prefix cache
  EmbeddingSum embedding = {};
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();
  int cached = 0;
  double waited_seconds = -1;  // not yet begun
  RequestStatus told = {};     // by on_progress

  RequestStatus status() const;
};

RequestStatus Work::status() const {
  using State = RequestStatus::State;
  RequestStatus s{.id = id, .name = request.name, .principal = request.principal};
  s.prompt_tokens = static_cast<int>(prompt->size());
  s.cached_tokens = cached;
  s.completion_tokens = writer.tokens();
  s.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - submitted).count();
  if (!sequence) return s;
  const KvUse use = kv_use(*sequence);
  s.computed_tokens = std::min(sequence->next_position(), s.prompt_tokens);
  s.state = s.computed_tokens < s.prompt_tokens ? State::kReading : State::kGenerating;
  s.kv_bytes = use.bytes;
  s.kv_retained = use.retained;
  return s;
}

}  // namespace

struct Service::Impl final : SchedMemory {
  Impl(std::shared_ptr<Engine::Impl> e, const ServiceOptions& o)
      : engine(std::move(e)), options(o), scheduler(sched_options()) {
    {
      std::lock_guard lock(engine->mutex);
      stats.kv_budget_bytes = engine->pool->budget_bytes();
      prefixes.emplace(*engine->pool, engine->model->kv_shape(),
                       PrefixIndex::Options{attention_tokens(engine->model->config())});
    }
    thread = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Impl() override {
    {
      std::lock_guard lock(mutex);  // or the thread could look, see no request, and sleep for ever
      thread.request_stop();
    }
    wake.notify_all();
    thread.join();
    std::lock_guard lock(engine->mutex);
    prefixes.reset();
  }

  SchedOptions sched_options() const {
    SchedOptions s;
    s.most_running = static_cast<size_t>(options.most_running);
    s.most_waiting = SIZE_MAX;  // submit() counts
    s.step_tokens = static_cast<size_t>(engine->options.prefill_chunk);
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
    if (work.waited_seconds < 0)
      work.waited_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - work.submitted).count();
    work.embedding = {};
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
  std::map<uint64_t, std::unique_ptr<Work>> works;

  mutable std::mutex mutex;  // of all below; never held while a callback runs or a step is computed
  std::condition_variable wake;
  std::vector<std::unique_ptr<Work>> submitted;
  std::set<uint64_t> cancelled;
  uint64_t next_id = 1;
  ServiceStats stats;
  std::map<uint64_t, RequestStatus> statuses;  // of works

  std::jthread thread;
};

Result<std::unique_ptr<Service>> Service::start(const Engine& engine, const ServiceOptions& options) {
  Engine::Impl& e = *engine.impl_;
  if (options.most_running < 1 || options.most_running > e.options.prefill_chunk)
    return errorf(ErrorCode::kInvalidArgument, "{} requests at once make no sense: give 1 to {}, the prefill chunk",
                  options.most_running, e.options.prefill_chunk);
  if (options.most_waiting < 1)
    return errorf(ErrorCode::kInvalidArgument, "a queue of {} requests makes no sense", options.most_waiting);
  if (e.team)
    return errorf(ErrorCode::kUnsupported,
                  "a service of many requests does not work over {} ranks yet; start it as one process", e.rank_count);
  if (e.retention)
    return errorf(ErrorCode::kUnsupported,
                  "KV policy '{}' works on one session at a time; a service needs an engine without",
                  e.options.kv_policy);
  if (e.decode_planner->repair_every() > 0)
    return errorf(ErrorCode::kUnsupported, "decode method '{}' repairs sessions one by one; a service needs repair=0",
                  e.options.decode);
  return std::unique_ptr<Service>(new Service(std::make_unique<Impl>(engine.impl_, options)));
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

Result<uint64_t> Service::submit(ServiceRequest request, ServiceCallbacks callbacks) {
  Impl& s = *impl_;
  const Engine::Impl& e = *s.engine;
  const auto vocab = static_cast<int>(e.model->config().vocab_size);
  if (request.prompt.empty())
    return errorf(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  for (TokenId id : request.prompt)
    if (id < 0 || id >= vocab)
      return errorf(ErrorCode::kInvalidArgument, "token {} is not in the vocabulary of {} tokens", id, vocab);
  if (static_cast<int64_t>(request.prompt.size()) >= e.memory.context_tokens)
    return errorf(ErrorCode::kInvalidArgument,
                  "a prompt of {} tokens leaves no room for an answer: the context holds {}", request.prompt.size(),
                  e.memory.context_tokens);
  if (request.options.max_tokens == 0)
    return errorf(ErrorCode::kInvalidArgument, "an answer of no tokens makes no sense");
  GODWIT_ASSIGN(AnswerWriter writer, AnswerWriter::make(*e.vocabulary, vocab, request.options));
  auto prompt = std::make_shared<const std::vector<int32_t>>(request.prompt);
  std::vector<TokenId> tokens = *prompt;
  std::string space = request.principal + '\0' + request.salt;
  auto work = std::make_unique<Work>(Work{0, std::move(request), std::move(callbacks), std::move(writer),
                                          std::move(prompt), std::move(tokens), nullptr, std::move(space)});
  std::lock_guard lock(s.mutex);
  if (const size_t waiting = s.submitted.size() + s.stats.waiting;
      waiting >= static_cast<size_t>(s.options.most_waiting)) {
    ++s.stats.refused;
    return errorf(ErrorCode::kExhausted, "{} requests are waiting, and no more may; try again later", waiting);
  }
  work->id = s.next_id++;
  const uint64_t id = work->id;
  s.submitted.push_back(std::move(work));
  s.wake.notify_all();
  return id;
}

void Service::cancel(uint64_t id) {
  std::lock_guard lock(impl_->mutex);
  impl_->cancelled.insert(id);
  impl_->wake.notify_all();
}

ServiceStats Service::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

std::vector<RequestStatus> Service::requests() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<RequestStatus> list;
  for (const auto& [id, status] : impl_->statuses) list.push_back(status);
  for (const auto& work : impl_->submitted) list.push_back(work->status());
  return list;
}

void Service::Impl::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex);
      wake.wait(lock,
                [&] { return stop.stop_requested() || !submitted.empty() || !cancelled.empty() || !works.empty(); });
    }
    take_submitted();
    if (!works.empty() && !stop.stop_requested()) step();
  }
  take_submitted();
  while (!works.empty()) end(works.begin()->first, FinishReason::kCancelled);
}

void Service::Impl::take_submitted() {
  std::vector<std::unique_ptr<Work>> list;
  std::set<uint64_t> gone;
  {
    std::lock_guard lock(mutex);
    list.swap(submitted);
    gone.swap(cancelled);
    stats.waiting += list.size();
    for (const auto& work : list) statuses.emplace(work->id, work->status());
  }
  for (auto& work : list) {
    scheduler.submit({work->id, work->request.principal, work->request.priority, work->prompt});
    works.emplace(work->id, std::move(work));
  }
  for (uint64_t id : gone)
    if (works.contains(id)) end(id, FinishReason::kCancelled);
}

void Service::Impl::step() {
  std::vector<Rows> prefills, decodes;
  std::vector<Said> said;
  SchedStep plan;
  uint64_t kv_bytes = 0;
  {
    std::lock_guard lock(engine->mutex);
    plan = scheduler.next(*this);
    for (uint64_t id : plan.decodes) {
      Work& work = *works.at(id);
      decodes.push_back({&work, work.tokens.size() - 1, 1, true});
    }
    for (const SchedStep::Chunk& chunk : plan.chunks) {
      Work& work = *works.at(chunk.id);
      const size_t end = chunk.begin + chunk.tokens, middle = std::clamp(work.prompt->size(), chunk.begin, end);
      if (chunk.begin < middle)
        prefills.push_back({&work, chunk.begin, middle - chunk.begin, chunk.last && middle == end});
      // Of a request that had given way: what it had sampled is computed as it was, only not one by one.
      if (middle < end) decodes.push_back({&work, middle, end - middle, chunk.last});
      work.sequence->truncate(static_cast<int32_t>(chunk.begin));  // forward() appends, part by part
    }
    for (uint64_t id : plan.decodes)
      works.at(id)->sequence->truncate(static_cast<int32_t>(works.at(id)->tokens.size() - 1));
    compute(Phase::kPrefill, prefills, said);
    compute(Phase::kDecode, decodes, said);
    if (options.prefix_cache)
      for (const Rows& rows : prefills)
        prefixes->remember(rows.work->space, std::span(*rows.work->prompt).first(rows.begin + rows.count),
                           *rows.work->sequence);
    for (const auto& list : {prefills, decodes})
      for (const Rows& rows : list) rows.work->sequence->settle();
    kv_bytes = engine->pool->bytes_in_use();
  }
  {
    std::lock_guard lock(mutex);
    ++stats.steps;
    stats.gave_way += plan.gave_way.size();
    stats.running = scheduler.running();
    stats.waiting = scheduler.waiting();
    stats.prefix_blocks = prefixes->blocks();
    stats.prefix_bytes = stats.prefix_blocks * engine->memory.kv_bytes_per_page_column;
    stats.kv_bytes_in_use = kv_bytes;
    for (const Rows& rows : prefills) stats.tokens_read += rows.count;
    for (const Said& one : said) stats.tokens_sampled += works.at(one.id)->request.embed ? 0 : 1;
    for (const auto& [id, work] : works) statuses.insert_or_assign(id, work->status());
  }
  for (const auto& [id, work] : works) tell_progress(*work);
  for (uint64_t id : plan.failed)
    end(id, FinishReason::kKvExhausted,
        "the KV memory cannot hold this request; shorten the prompt or raise the KV budget");
  for (const Said& one : said) tell(one);
}

// Steps of as many rows as the workspace has. Rows of one request stay in order.
void Service::Impl::compute(Phase phase, std::span<const Rows> list, std::vector<Said>& said) {
  const auto most = static_cast<size_t>(engine->workspace->max_rows());
  std::vector<Rows> part;
  size_t rows = 0;
  for (Rows next : list) {
    while (next.count > 0) {
      const size_t count = std::min(next.count, most - rows);
      part.push_back({next.work, next.begin, count, next.samples && count == next.count});
      rows += count;
      next.begin += count;
      next.count -= count;
      if (rows < most) continue;
      forward(phase, part, said);
      part.clear();
      rows = 0;
    }
  }
  if (!part.empty()) forward(phase, part, said);
}

void Service::Impl::forward(Phase phase, std::span<const Rows> list, std::vector<Said>& said) {
  Engine::Impl& e = *engine;
  std::vector<int32_t> tokens, last;
  std::vector<AttentionSegment> segments;
  std::vector<Work*> who;
  for (const Rows& rows : list) {
    const auto begin = static_cast<int32_t>(tokens.size()), end = begin + static_cast<int32_t>(rows.count);
    const KvOutcome room = rows.work->sequence->append(end - begin);
    GODWIT_CHECK(static_cast<bool>(room), "reserved, truncated, and not there any more");
    segments.push_back({.sequence = rows.work->sequence.get(),
                        .row_begin = begin,
                        .row_end = end,
                        .first_position = static_cast<int32_t>(rows.begin),
                        .prompt_end = static_cast<int32_t>(rows.work->prompt->size())});
    const auto from = rows.work->tokens.begin() + static_cast<ptrdiff_t>(rows.begin);
    tokens.insert(tokens.end(), from, from + static_cast<ptrdiff_t>(rows.count));
    if (!rows.samples || rows.work->request.embed) continue;
    last.push_back(end - 1);
    who.push_back(rows.work);
  }
  const PlannedSegments group{(phase == Phase::kDecode ? e.decode_planner : e.prefill_planner).get(), segments};
  e.model->forward(*e.workspace, {.tokens = tokens, .groups = {&group, 1}, .phase = phase});
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].work->request.embed) continue;
    list[i].work->embedding.add(*e.model, *e.workspace, *e.backend, segments[i].row_begin, segments[i].row_end);
    if (list[i].samples) said.push_back({list[i].work->id, {}, FinishReason::kStop, {}});
  }
  const auto vocab = static_cast<size_t>(e.model->config().vocab_size),
             most = static_cast<size_t>(e.workspace->max_logit_rows());
  std::vector<float> values;
  for (size_t i = 0; i < last.size(); i += most) {
    const size_t count = std::min(most, last.size() - i);
    values.resize(count * vocab);
    const Tensor device = e.model->logits(*e.workspace, std::span(last).subspan(i, count));
    e.backend->download(std::as_writable_bytes(std::span(values)), device.data);
    for (size_t j = 0; j < count; ++j) said.push_back(sample(*who[i + j], std::span(values).subspan(j * vocab, vocab)));
  }
}

Service::Impl::Said Service::Impl::sample(Work& work, std::span<const float> logits) {
  auto next = work.writer.next(logits, work.tokens);
  if (!next) return {work.id, {}, FinishReason::kStop, std::move(next).error().message};
  work.tokens.push_back(next->piece.id);
  if (!next->finish && static_cast<int64_t>(work.tokens.size()) >= engine->memory.context_tokens)
    next->finish = FinishReason::kContextFull;
  if (!next->finish) scheduler.sampled(work.id);
  return {work.id, std::move(next->piece), next->finish, {}};
}

void Service::Impl::tell_progress(Work& work) const {
  if (!work.callbacks.on_progress) return;
  RequestStatus now = work.status();
  if (now.computed_tokens == work.told.computed_tokens && now.kv_bytes == work.told.kv_bytes) return;
  work.callbacks.on_progress(now);
  work.told = std::move(now);
}

void Service::Impl::tell(const Said& said) {
  Work& work = *works.at(said.id);
  if (said.error.empty() && work.callbacks.on_piece) work.callbacks.on_piece(said.piece);
  if (said.finish) end(said.id, *said.finish, said.error);
}

void Service::Impl::end(uint64_t id, FinishReason finish, std::string error) {
  uint64_t kv_bytes = 0;
  {
    std::lock_guard lock(engine->mutex);
    scheduler.remove(id, *this);
    kv_bytes = engine->pool->bytes_in_use();
  }
  const std::unique_ptr<Work> ended = std::move(works.at(id));
  works.erase(id);
  Work& work = *ended;
  const ServiceAnswer answer{finish,
                             std::move(error),
                             static_cast<int>(work.prompt->size()),
                             work.cached,
                             work.writer.tokens(),
                             static_cast<int>(work.writer.stop().value_or(-1)),
                             std::max(work.waited_seconds, 0.0),
                             work.embedding.unit_mean()};
  if (std::string rest = work.writer.rest();
      !rest.empty() && finish != FinishReason::kCancelled && work.callbacks.on_piece)
    work.callbacks.on_piece({work.tokens.back(), std::move(rest), 0, {}, false});
  {
    std::lock_guard lock(mutex);
    stats.running = scheduler.running();
    stats.waiting = scheduler.waiting();
    stats.kv_bytes_in_use = kv_bytes;
    statuses.erase(id);
    ++(!answer.error.empty() ? stats.failed : finish == FinishReason::kCancelled ? stats.cancelled : stats.answered);
    stats.prompt_tokens += static_cast<uint64_t>(answer.prompt_tokens);
    stats.cached_tokens += static_cast<uint64_t>(answer.cached_tokens);
    stats.completion_tokens += static_cast<uint64_t>(answer.completion_tokens);
  }
  if (work.callbacks.on_end) work.callbacks.on_end(answer);
}

}  // namespace godwit
