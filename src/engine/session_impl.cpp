#include "engine/session_impl.h"

#include <algorithm>

#include "engine/team.h"

namespace godwit {

Session::Impl::Impl(std::shared_ptr<Engine::Impl> e) : engine(std::move(e)) {
  std::lock_guard lock(engine->mutex);
  sequence = engine->team ? engine->team->next_share()
                          : std::make_unique<KvSequence>(*engine->pool, engine->model->kv_shape());
  if (engine->team)
    team_sequence = engine->team->create(*sequence);
  else if (engine->retention)
    retention = std::make_unique<KvRetention>(engine->retention, *sequence);
}

Session::Impl::~Impl() {
  std::lock_guard lock(engine->mutex);
  retention.reset();
  if (engine->team) engine->team->drop(team_sequence);
  sequence.reset();
}

Status Session::Impl::append(std::span<const TokenId> added) {
  const int64_t vocab = engine->model->config().vocab_size, limit = engine->memory.context_tokens;
  for (TokenId id : added)
    if (id < 0 || id >= vocab)
      return errorf(ErrorCode::kInvalidArgument, "token {} is not in the vocabulary of {} tokens", id, vocab);
  if (static_cast<int64_t>(tokens.size() + added.size()) > limit)
    return errorf(
        ErrorCode::kExhausted,
        "{} tokens do not fit: the context holds {}, of which {} are in use; shorten the prompt or open the model "
        "with a longer context",
        added.size(), limit, tokens.size());
  tokens.insert(tokens.end(), added.begin(), added.end());
  phases.resize(tokens.size(), Phase::kPrefill);
  return {};
}

void Session::Impl::append_sampled(TokenId token) {
  tokens.push_back(token);
  phases.push_back(Phase::kDecode);
}

void Session::Impl::drop_tokens(size_t count) {
  tokens.resize(count);
  phases.resize(count);
  if (count < computed()) forget_computed(count);
}

void Session::Impl::forget_computed(size_t count) {
  std::lock_guard lock(engine->mutex);
  auto left = static_cast<int32_t>(count);
  const int32_t least = engine->team ? engine->team->shortest_exact(team_sequence) : sequence->shortest_exact();
  if (left < least || (retention && left < retention->shortest_exact())) left = 0;
  unrepaired -= std::min(unrepaired, computed() - static_cast<size_t>(left));
  if (engine->team)
    engine->team->truncate(team_sequence, left);
  else
    sequence->truncate(left);
  if (retention) retention->forget(left);
  logits.clear();
}

Status Session::Impl::forward(size_t count, AttentionPlanner& planner) {
  Engine::Impl& e = *engine;
  const size_t begin = computed();
  const auto rows = static_cast<int32_t>(count);
  if (KvOutcome outcome = sequence->append(rows); !outcome)
    return errorf(
        ErrorCode::kExhausted,
        "the KV memory is full: {} of {} are in use and this step of {} tokens lacks {} pages; free a session, "
        "shorten the context or raise the KV budget",
        bytes_text(e.pool->bytes_in_use()), bytes_text(e.pool->budget_bytes()), count, outcome.missing_pages);
  const AttentionSegment segment{.sequence = sequence.get(),
                                 .row_begin = 0,
                                 .row_end = rows,
                                 .first_position = static_cast<int32_t>(begin),
                                 .prompt_end = static_cast<int32_t>(tokens.size())};
  const PlannedSegments group{&planner, {&segment, 1}};
  e.model->forward(*e.workspace, {.tokens = std::span(tokens).subspan(begin, count),
                                  .groups = {&group, 1},
                                  .phase = phases[begin],
                                  .observer = retention ? retention.get() : watcher});
  sequence->settle();
  return {};
}

Status Session::Impl::repair() {
  const size_t count = std::exchange(unrepaired, 0);
  sequence->truncate(static_cast<int32_t>(computed() - count));
  return forward(count, *engine->repair_planner);
}

Status Session::Impl::step_over_ranks(bool prompt_ends, const OnLogits& on_logits) {
  if (watcher != nullptr)
    return errorf(ErrorCode::kUnsupported, "attention over several ranks cannot be watched; start one process");
  Team& team = *engine->team;
  const size_t begin = computed(), count = step_tokens();
  const auto rows = static_cast<int32_t>(count);
  Team::Part part{.sequence = team_sequence,
                  .begin = static_cast<int32_t>(begin),
                  .tokens = std::span(tokens).subspan(begin, count),
                  .first_logits = on_logits ? 0 : rows - 1,
                  .prompt_ends = prompt_ends && begin + count == tokens.size()};
  if (phases[begin] == Phase::kDecode) GODWIT_TRY(team.fit_answer(team_sequence));
  return team.step(phases[begin], {&part, 1}, [&](size_t, int32_t row, std::span<const float> values) {
    if (on_logits) on_logits(begin + static_cast<size_t>(row), values);
    if (row + 1 == rows) logits.assign(values.begin(), values.end());
  });
}

Status Session::Impl::step(bool prompt_ends, const OnLogits& on_logits) {
  std::lock_guard lock(engine->mutex);
  Engine::Impl& e = *engine;
  const size_t begin = computed(), vocab = static_cast<size_t>(e.model->config().vocab_size);
  if (e.team) {
    const Status status = step_over_ranks(prompt_ends, on_logits);
    const bool lacks = !status && status.error().code == ErrorCode::kExhausted && computed() == begin;
    return lacks && e.team->widen(team_sequence) ? step_over_ranks(prompt_ends, on_logits) : status;
  }
  const size_t count = step_tokens();
  const auto rows = static_cast<int32_t>(count);
  const bool decodes = phases[begin] == Phase::kDecode;
  const int32_t first = on_logits ? 0 : rows - 1;
  prompt_ends = prompt_ends && begin + count == tokens.size();
  AttentionPlanner& planner = decodes ? *e.decode_planner : *e.prefill_planner;
  if (!decodes && unrepaired > 0) GODWIT_TRY(repair());
  if (retention) GODWIT_TRY(retention->prepare(rows));
  GODWIT_TRY(forward(count, planner));

  std::vector<int32_t> picked;
  std::vector<float> values;
  const int32_t most = e.workspace->max_logit_rows();
  for (int32_t row = first; row < rows; row += most) {
    const int32_t end = std::min(rows, row + most);
    picked.clear();
    for (int32_t i = row; i < end; ++i) picked.push_back(i);
    values.resize(picked.size() * vocab);
    Tensor device = e.model->logits(*e.workspace, picked);
    e.backend->download(std::as_writable_bytes(std::span(values)), device.data);
    for (int32_t i = row; on_logits && i < end; ++i)
      on_logits(begin + static_cast<size_t>(i), std::span(values).subspan(static_cast<size_t>(i - row) * vocab, vocab));
    if (end == rows) logits.assign(values.end() - static_cast<ptrdiff_t>(vocab), values.end());
  }
  if (retention) return retention->finish(rows, prompt_ends);
  if (const auto every = static_cast<size_t>(planner.repair_every()); decodes && every > 0) {
    unrepaired += count;
    if (unrepaired >= every) return repair();
  }
  return {};
}

size_t Session::Impl::phase_tokens() const {
  const auto first = phases.begin() + static_cast<ptrdiff_t>(computed());
  return static_cast<size_t>(std::find_if(first, phases.end(), [&](Phase phase) { return phase != *first; }) - first);
}

size_t Session::Impl::step_tokens() const {
  if (phases[computed()] == Phase::kDecode) return 1;
  const Team* team = engine->team.get();
  const bool by_pieces = engine->retention && engine->retention->by_pieces();
  const int32_t most = team != nullptr && !by_pieces ? team->step_tokens(team_sequence) : engine->step_tokens();
  return std::min(static_cast<size_t>(most), phase_tokens());
}

Status Session::Impl::fit_prompt() {
  std::lock_guard lock(engine->mutex);
  if (!engine->team || phases[computed()] != Phase::kPrefill) return {};
  return engine->team->fit_prompt(team_sequence, static_cast<int32_t>(phase_tokens()));
}

Status Session::Impl::compute_pending(const std::function<void(const Progress&)>& on_progress, std::stop_token stop,
                                      const OnLogits& on_logits, bool prompt_ends) {
  const size_t begin = computed(), end = tokens.size();
  size_t fitted = begin;  // once for a prompt
  while (computed() < end) {
    if (computed() >= fitted) {
      fitted = computed() + phase_tokens();
      GODWIT_TRY(fit_prompt());
    }
    if (stop.stop_requested()) return errorf(ErrorCode::kCancelled, "stopped after {} of {} tokens", computed(), end);
    GODWIT_TRY(step(prompt_ends, on_logits));
    if (on_progress) on_progress({static_cast<int64_t>(computed() - begin), static_cast<int64_t>(end - begin)});
  }
  return {};
}

}  // namespace godwit
