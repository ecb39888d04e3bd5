#include "engine/kv_use.h"
#include "engine/service_ranks.h"

namespace godwit {

RequestStatus Service::Work::status() const {
  using State = RequestStatus::State;
  RequestStatus s{.id = id, .name = request.name, .principal = request.principal};
  s.prompt_tokens = static_cast<int>(prompt->size());
  s.cached_tokens = cached;
  s.kv = kv;
  s.completion_tokens = writer.tokens();
  s.ranks = ranks;
  s.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - submitted).count();
  if (!sequence) return s;
  const KvUse use = dropped ? *dropped : team != nullptr ? KvUse{team->kv_bytes(*sequence), 1} : kv_use(*sequence);
  s.computed_tokens = std::min(sequence->next_position(), s.prompt_tokens);
  s.state = s.computed_tokens < s.prompt_tokens ? State::kReading : State::kGenerating;
  s.kv_bytes = use.bytes;
  s.kv_retained = use.retained;
  return s;
}

Result<std::unique_ptr<Service>> Service::start(const Engine& engine, const ServiceOptions& options) {
  const Engine::Impl& e = engine.impl();
  const EngineOptions& o = e.options;
  if (options.most_running < 1 || options.most_running > e.options.prefill_chunk)
    return errorf(ErrorCode::kInvalidArgument, "{} requests at once make no sense: give 1 to {}, the prefill chunk",
                  options.most_running, e.options.prefill_chunk);
  if (options.most_waiting < 1)
    return errorf(ErrorCode::kInvalidArgument, "a queue of {} requests makes no sense", options.most_waiting);
  if (options.most_ranks < 0 || options.most_ranks > e.rank_count)
    return errorf(ErrorCode::kInvalidArgument, "requests may not ask for {} ranks where there {}", options.most_ranks,
                  e.rank_count == 1 ? "is one; start more with mpirun" : fmt::format("are {}", e.rank_count));
  if (e.decode_planner->repair_every() > 0)
    return errorf(ErrorCode::kUnsupported, "decode method '{}' repairs sessions one by one; a service needs repair=0",
                  e.options.decode);
  GODWIT_ASSIGN(KvChoices choices, KvChoices::make({.own = {{o.kv_policy, o.kv_budget, o.kv_trigger}, e.retention},
                                                    .shape = e.model->kv_shape(),
                                                    .format = e.pool->format(),
                                                    .q_heads = e.model->config().heads,
                                                    .prefill_chunk = o.prefill_chunk,
                                                    .equal_pages = e.pool->equal_pages(),
                                                    .ranks = e.rank_count},
                                                   options.kv));
  if (e.team) {
    std::vector<std::string> policies = options.kv.policies;
    std::erase(policies, "none");
    std::lock_guard lock(engine.impl().mutex);
    GODWIT_TRY(e.team->allow(policies));
  }
  return std::unique_ptr<Service>(
      new Service(std::make_unique<Impl>(engine.shared_impl(), options, std::move(choices))));
}

Service::Impl::Impl(std::shared_ptr<Engine::Impl> e, const ServiceOptions& o, KvChoices c)
    : engine(std::move(e)),
      options(o),
      choices(std::move(c)),
      scheduler(sched_options()),
      spread(engine->team != nullptr) {
  {
    std::lock_guard lock(engine->mutex);
    stats.kv_budget_bytes = engine->pool->budget_bytes();
    stats.ranks = engine->rank_count;
    make_caches();
    if (spread) over_ranks = std::make_unique<OverRanks>(*this);
  }
  thread = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Service::Impl::make_caches() {
  prefixes.emplace(*engine->pool, engine->model->kv_shape(),
                   PrefixIndex::Options{attention_tokens(engine->model->config())});
  states.emplace(*engine->pool,
                 PrefixStates::Options{.attention_tokens = attention_tokens(engine->model->config()),
                                       .piece_tokens = static_cast<size_t>(engine->options.prefill_chunk),
                                       .most_bytes_beside = engine->pool->budget_bytes() / 16});
}

Service::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);  // or the thread could look, see no request, and sleep for ever
    thread.request_stop();
  }
  wake.notify_all();
  thread.join();
  std::lock_guard lock(engine->mutex);
  over_ranks.reset();
  states.reset();
  prefixes.reset();
}

SchedMemory& Service::Impl::memory() {
  return over_ranks ? static_cast<SchedMemory&>(*over_ranks) : *this;
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
  if (s.spread && request.embed)
    return errorf(ErrorCode::kUnsupported, "embeddings are not computed over {} ranks; start one process for them",
                  e.options.ranks->size());
  GODWIT_ASSIGN(AnswerWriter writer, AnswerWriter::make(*e.vocabulary, vocab, request.options));
  KvChoices::Chosen kv;  // an embedding is made of all there is
  if (!request.embed) {
    GODWIT_ASSIGN(kv, s.choices.choose(request.kv, request.prompt.size()));
  }
  GODWIT_TRY(s.check(request.ranks, kv.text));
  auto prompt = std::make_shared<const std::vector<int32_t>>(request.prompt);
  std::vector<TokenId> tokens = *prompt;
  std::string space = request.principal + '\0' + request.salt, state_space;
  if (s.options.prefix_cache && kv.rules && kv.rules->by_pieces() && !s.spread)
    state_space = kv.rules->key() + '\0' + space;
  auto work = std::make_unique<Work>(Work{.request = std::move(request),
                                          .callbacks = std::move(callbacks),
                                          .writer = std::move(writer),
                                          .prompt = std::move(prompt),
                                          .tokens = std::move(tokens),
                                          .space = std::move(space),
                                          .state_space = std::move(state_space),
                                          .kv = std::move(kv.text),
                                          .rules = std::move(kv.rules)});
  std::lock_guard lock(s.mutex);
  GODWIT_TRY(s.status);
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

Status Service::check(const KvChoice& choice, size_t prompt_tokens) const {
  GODWIT_TRY(impl_->choices.choose(choice, prompt_tokens));
  return {};
}

Status Service::check(const RankDegrees& ranks, const std::optional<KvChoice>& kv) const {
  const EngineOptions& o = impl_->engine->options;
  return impl_->check(ranks, kv.value_or(KvChoice{.policy = o.kv_policy}));
}

Status Service::Impl::no_longer(int ranks) const {
  std::lock_guard lock(mutex);
  return errorf(ErrorCode::kUnsupported,
                "{} ranks were asked for, and one is left: {}; leave the number out, or start the job anew", ranks,
                stats.lost_ranks);
}

Status Service::Impl::check(const RankDegrees& asked, const KvChoice& kv) const {
  for (const int ranks : {asked.prefill, asked.decode}) {
    if (ranks == 0) continue;
    if (options.most_ranks == 0)
      return errorf(ErrorCode::kInvalidArgument, "requests may not choose the number of ranks here: leave it out");
    if (ranks < 0 || ranks > options.most_ranks)
      return errorf(ErrorCode::kInvalidArgument, "{} ranks were asked for; a request may have 1 to {} here", ranks,
                    options.most_ranks);
    if (ranks > 1 && !spread) return no_longer(ranks);
  }
  const RankDegrees ranks = ranks_for(asked);
  if (spread && !kv.policy.empty() && kv.policy != "none" && ranks.decode != 0 && ranks.decode != ranks.prefill)
    return errorf(
        ErrorCode::kInvalidArgument,
        "with KV policy '{}' an answer stays on the ranks of its prompt, since entries that were dropped leave "
        "gaps; ask for as many ranks for both, or not for those of the answer",
        kv.policy);
  return {};
}

const ServiceOptions& Service::options() const {
  return impl_->options;
}

void Service::cancel(uint64_t id) {
  std::lock_guard lock(impl_->mutex);
  impl_->cancelled.insert(id);
  impl_->wake.notify_all();
}

Status Service::status() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->status;
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

}  // namespace godwit
