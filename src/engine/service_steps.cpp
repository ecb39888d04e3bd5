// The service's thread: asks the scheduler for a step, computes it, and says what came of it.
#include <algorithm>

#include "engine/service_ranks.h"
#include "kv/row_observers.h"

namespace godwit {
void Service::Impl::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kBetweenLooks(500);  // for lost ranks, of which nobody tells
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex);
      const auto due = [&] {
        return stop.stop_requested() || !submitted.empty() || !cancelled.empty() || !works.empty() || ranks_are_lost();
      };
      while (spread && !due()) wake.wait_for(lock, kBetweenLooks);
      wake.wait(lock, due);
    }
    take_submitted();
    if (ranks_are_lost()) lose_ranks();
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
    schedule(*work);
    const uint64_t id = work->id;
    works.emplace(id, std::move(work));
    end_if_in_vain(id);  // it came while ranks were lost
  }
  for (uint64_t id : gone)
    if (works.contains(id)) end(id, FinishReason::kCancelled);
}

void Service::Impl::schedule(Work& work) {
  work.team = engine->team.get();
  scheduler.submit({.id = work.id,
                    .principal = work.request.principal,
                    .priority = work.request.priority,
                    .prompt = work.prompt,
                    .space = work.state_space.empty() ? work.space : work.state_space,
                    .shareable = std::max(shareable(work), resumable(work)),
                    .piece_tokens = piece_tokens(work),
                    .sampled = work.tokens.size() - work.prompt->size()});
}

void Service::Impl::step() {
  std::vector<Rows> prefills, decodes;
  std::vector<Said> said;
  SchedStep plan;
  uint64_t kv_bytes = 0, state_bytes = 0;
  {
    std::lock_guard lock(engine->mutex);
    plan = scheduler.next(memory());
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
      if (!over_ranks) work.sequence->truncate(static_cast<int32_t>(chunk.begin));  // forward() appends, part by part
    }
    for (uint64_t id : over_ranks ? std::vector<uint64_t>() : plan.decodes)
      works.at(id)->sequence->truncate(static_cast<int32_t>(works.at(id)->tokens.size() - 1));
    order_by_pages(decodes);
    compute(Phase::kPrefill, prefills, said);
    compute(Phase::kDecode, decodes, said);
    for (const Rows& rows : over_ranks&& options.prefix_cache ? prefills : std::vector<Rows>())
      over_ranks->remember(*rows.work, rows.begin + rows.count);
    kv_bytes = engine->pool->bytes_in_use();
    state_bytes = states->bytes();
  }
  {
    std::lock_guard lock(mutex);
    ++stats.steps;
    stats.gave_way += plan.gave_way.size() + std::exchange(postponed, 0);
    stats.running = scheduler.running();
    stats.waiting = scheduler.waiting();
    stats.prefix_blocks = over_ranks ? over_ranks->kept_blocks() : prefixes->blocks();
    stats.prefix_bytes = stats.prefix_blocks * engine->memory.kv_bytes_per_page_column;
    stats.prefix_states = states->size();
    stats.prefix_state_bytes = state_bytes;
    stats.kv_bytes_in_use = kv_bytes;
    for (const Rows& rows : prefills) stats.tokens_read += rows.count;
    for (const Said& one : said) stats.tokens_sampled += one.error.empty() && !works.at(one.id)->request.embed ? 1 : 0;
    for (const auto& [id, work] : works) statuses.insert_or_assign(id, work->status());
  }
  for (const auto& [id, work] : works) tell_progress(*work);
  // Where ranks are lost, memory was not what those lacked, and what was said was computed before.
  for (uint64_t id : ranks_are_lost() ? std::vector<uint64_t>() : plan.failed)
    end(id, FinishReason::kKvExhausted, does_not_fit());
  for (const Said& one : said) tell(one);
}

// Requests that share pages come one after another, and attend to them at once (see attn/shared_pages.h).
void Service::Impl::order_by_pages(std::vector<Rows>& list) const {
  std::map<const Work*, std::vector<PageId>> pages;  // of one head: heads share alike
  for (const Rows& rows : list) {
    std::vector<PageRef> refs;
    const KvSequence& sequence = *rows.work->sequence;
    sequence.list_pages(0, 0, 0, sequence.pages(0, 0), refs);
    for (const PageRef& ref : refs) pages[rows.work].push_back(ref.page);
  }
  std::stable_sort(list.begin(), list.end(),
                   [&](const Rows& a, const Rows& b) { return pages[a.work] < pages[b.work]; });
}

// Steps of as many rows as the workspace has. Rows of one request stay in order, and where its policy minds how they
// are cut, together: they fit into an empty step.
void Service::Impl::compute(Phase phase, std::span<const Rows> list, std::vector<Said>& said) {
  const auto most = static_cast<size_t>(engine->workspace->max_rows());
  const Team* team = engine->team.get();
  std::vector<Rows> part;
  size_t rows = 0;
  for (Rows next : list) {
    while (next.count > 0 && next.work->sequence) {  // else it was postponed
      (phase == Phase::kPrefill ? next.work->ranks.prefill : next.work->ranks.decode) =
          team == nullptr ? 1 : team->degree(next.work->team_sequence);
      const size_t left = most - rows;
      if (team != nullptr && rows > 0 && piece_tokens(*next.work) > 0 &&
          static_cast<size_t>(team->rows_of(next.work->team_sequence, static_cast<int32_t>(next.count))) > left) {
        forward(phase, std::exchange(part, {}), said);
        rows = 0;
        continue;
      }
      const size_t fit =
          team == nullptr ? left
                          : static_cast<size_t>(team->tokens_of(next.work->team_sequence, static_cast<int32_t>(left)));
      const size_t count = team != nullptr && piece_tokens(*next.work) > 0 ? next.count : std::min(next.count, fit);
      part.push_back({next.work, next.begin, count, next.samples && count == next.count});
      rows += team == nullptr
                  ? count
                  : static_cast<size_t>(team->rows_of(next.work->team_sequence, static_cast<int32_t>(count)));
      next.begin += count;
      next.count -= count;
      // Over ranks, rows are rounded. What is left of a request is another step's: it attends to what this one writes.
      if (rows < most && next.count == 0) continue;
      forward(phase, part, said);
      part.clear();
      rows = 0;
    }
  }
  if (!part.empty()) forward(phase, part, said);
}

// Before a policy drops entries. What stays of pages that others have is copied, and the prefix cache has most of them:
// as much of it goes as that takes; or else all of it, and the sequence can change its pages in place.
void Service::Impl::make_way(const Work& work) {
  const KvPool& pool = *engine->pool;
  const KvFormat& format = pool.format();
  const KvSequence& sequence = *work.sequence;
  const KvShape& shape = sequence.shape();
  const auto heads = static_cast<size_t>(shape.layers * shape.kv_heads);
  size_t need = sequence.bytes() - (format.seals ? 0 : sequence.exclusive_bytes());
  if (work.rules->method.row->needs_budget) {
    const auto tokens = static_cast<size_t>(sequence.next_position()), page = static_cast<size_t>(format.page_tokens);
    const size_t slots = std::min(tokens, work.rules->budget.slots_per_head(sequence.next_position(), shape, format));
    need = std::min(need, heads * format.most_bytes(slots + page, 0));
  }
  need += sequence.bytes() / format.page_bytes() * format.aux_bytes();  // positions with gaps
  const auto missing = [&] {
    const size_t free = pool.budget_bytes() - pool.bytes_in_use();
    return need > free ? (need - free) / format.page_bytes() + 1 : 0;
  };
  if (missing() > 0) release_prefixes(missing());
  if (missing() > 0) states->forget_all();
  if (missing() > 0) prefixes->forget_all();
}

// Room was reserved and given back; since then, others' policies may have taken some.
bool Service::Impl::prepare(const Rows& rows) {
  Work& work = *rows.work;
  const auto count = static_cast<int>(rows.count);
  if (work.retention) {
    if (work.retention->looks_before(count)) make_way(work);
    if (!work.retention->prepare(count)) return false;
  }
  return make_room(work, rows.count);
}

// What a prompt's beginning left is remembered before anything of it is dropped, and, where others of its rules can go
// on with it, after that.
bool Service::Impl::finish(Phase phase, const Rows& rows) {
  Work& work = *rows.work;
  const size_t end = rows.begin + rows.count, prompt = work.prompt->size();
  if (options.prefix_cache && phase == Phase::kPrefill && (!work.retention || work.retention->whole()))
    prefixes->remember(work.space, std::span(*work.prompt).first(std::min(end, prompt - std::min(prompt, tail_rows()))),
                       *work.sequence);
  work.sequence->settle();
  if (!work.retention) return true;
  const auto count = static_cast<int>(rows.count);
  const bool prompt_ends = phase == Phase::kPrefill && end == prompt;
  if (work.retention->looks_after(count, prompt_ends)) make_way(work);
  if (!work.retention->finish(count, prompt_ends)) return false;
  if (phase == Phase::kPrefill && end <= resumable(work) && end % piece_tokens(work) == 0) {
    const KvPool& pool = *engine->pool;
    const size_t beside = work.retention->bytes_beside(), free = pool.budget_bytes() - pool.bytes_in_use();
    if (beside > free) release_prefixes((beside - free) / pool.smallest_page_bytes() + 1);
    states->remember(work.state_space, work.prompt, end, *work.sequence, *work.retention);
  }
  return true;
}

std::string Service::Impl::does_not_fit() const {
  return fmt::format(
      "the KV memory {}cannot hold this request; shorten the prompt or raise the KV budget",
      stats.lost_ranks.empty() ? "" : fmt::format("of the one rank that is left ({}) ", stats.lost_ranks));
}

void Service::Impl::postpone(Work& work, std::vector<Said>& said) {
  ++postponed;
  if (scheduler.postpone(work.id, memory())) return;
  memory().release(work.id);  // nothing more of it is computed in this step
  said.push_back({work.id, {}, FinishReason::kKvExhausted, does_not_fit()});
}

void Service::Impl::forward(Phase phase, std::vector<Rows> list, std::vector<Said>& said) {
  if (over_ranks) return over_ranks->forward(phase, std::move(list), said);
  Engine::Impl& e = *engine;
  std::erase_if(list, [&](const Rows& rows) {
    if (!rows.work->sequence) return true;
    if (prepare(rows)) return false;
    postpone(*rows.work, said);
    return true;
  });
  if (list.empty()) return;
  std::vector<int32_t> tokens, last;
  std::vector<AttentionSegment> segments;
  std::vector<Work*> who;
  RowObservers observers;
  for (const Rows& rows : list) {
    const auto begin = static_cast<int32_t>(tokens.size()), end = begin + static_cast<int32_t>(rows.count);
    if (rows.work->retention && rows.work->retention->observes()) observers.add(begin, end, *rows.work->retention);
    segments.push_back({.sequence = rows.work->sequence.get(),
                        .row_begin = begin,
                        .row_end = end,
                        .first_position = static_cast<int32_t>(rows.begin),
                        .prompt_end = static_cast<int32_t>(rows.work->prompt->size())});
    const auto from = rows.work->tokens.begin() + static_cast<ptrdiff_t>(rows.begin);
    tokens.insert(tokens.end(), from, from + static_cast<ptrdiff_t>(rows.count));
  }
  const PlannedSegments group{(phase == Phase::kDecode ? e.decode_planner : e.prefill_planner).get(), segments};
  e.model->forward(
      *e.workspace,
      {.tokens = tokens, .groups = {&group, 1}, .phase = phase, .observer = observers.empty() ? nullptr : &observers});
  for (size_t i = 0; i < list.size(); ++i) {
    Work& work = *list[i].work;
    if (!finish(phase, list[i])) {
      postpone(work, said);
    } else if (work.request.embed) {
      work.embedding.add(*e.model, *e.workspace, *e.backend, segments[i].row_begin, segments[i].row_end);
      if (list[i].samples) said.push_back({work.id, {}, FinishReason::kStop, {}});
    } else if (list[i].samples) {
      last.push_back(segments[i].row_end - 1);
      who.push_back(&work);
    }
  }
  const auto vocab = static_cast<size_t>(e.model->config().vocab_size),
             most = static_cast<size_t>(e.workspace->max_logit_rows());
  for (size_t i = 0; i < last.size(); i += most) {
    const size_t count = std::min(most, last.size() - i);
    if (logit_rows.size() < count * vocab) logit_rows.resize(count * vocab);
    const auto values = std::span(logit_rows).first(count * vocab);
    const Tensor device = e.model->logits(*e.workspace, std::span(last).subspan(i, count));
    e.backend->download(std::as_writable_bytes(values), device.data);
    for (size_t j = 0; j < count; ++j) said.push_back(sample(*who[i + j], values.subspan(j * vocab, vocab)));
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
    scheduler.remove(id, memory());
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
                             work.embedding.unit_mean(),
                             work.ranks};
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
