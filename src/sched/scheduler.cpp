#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace godwit {

bool Scheduler::submit(SchedRequest request) {
  GODWIT_CHECK(request.prompt && !request.prompt->empty() && request.piece_tokens <= options_.step_tokens);
  if (waiting_ >= options_.most_waiting) return false;
  // Who comes new, or comes back, has had as much as whoever of those here had least.
  if (served_.find(request.principal) == served_.end()) {
    double least = INFINITY;
    for (const auto& [principal, cost] : served_) least = std::min(least, cost);
    served_[request.principal] = std::isinf(least) ? 0 : least;
  }
  const uint64_t id = request.id;
  Request made{.request = std::move(request), .order = arrivals_++, .since = steps_};
  made.tokens = made.request.prompt->size() + made.request.sampled;
  const bool added = requests_.emplace(id, std::move(made)).second;
  GODWIT_CHECK(added, "request {} is here twice", id);
  ++waiting_;
  return true;
}

void Scheduler::remove(uint64_t id, SchedMemory& memory) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  if (it->second.runs) {
    memory.release(id);
  } else {
    --waiting_;
  }
  const std::string principal = it->second.request.principal;
  requests_.erase(it);
  const auto same = [&](const auto& entry) { return entry.second.request.principal == principal; };
  if (std::none_of(requests_.begin(), requests_.end(), same)) served_.erase(principal);
}

void Scheduler::sampled(uint64_t id) {
  const auto it = requests_.find(id);
  GODWIT_CHECK(it != requests_.end() && it->second.computed == it->second.tokens);
  ++it->second.tokens;
}

double Scheduler::chunk_cost(size_t begin, size_t tokens) const {
  const auto n = static_cast<double>(tokens);
  return n * token_cost(static_cast<double>(begin) + (n - 1) / 2);
}

// As many tokens as the budget allows: the positive root of chunk_cost(begin, n) = budget. The first chunk of a step
// has at least one, or one piece.
size_t Scheduler::chunk_tokens(const Request& r, size_t left, double budget, bool first) const {
  const double a = 1 / (2 * options_.attention_tokens), b = token_cost(static_cast<double>(r.computed)) - a;
  const double most = budget <= 0 ? 0 : (std::sqrt(b * b + 4 * a * budget) - b) / (2 * a);
  const size_t tokens = std::min({left, r.tokens - r.computed, static_cast<size_t>(most)});
  size_t piece = 1;
  if (const size_t end = r.request.piece_tokens, prompt = r.request.prompt->size(); end > 0 && r.computed < prompt)
    piece = std::min(end - r.computed % end, prompt - r.computed);
  if (tokens < piece) return first ? piece : 0;
  return r.request.piece_tokens > 0 ? piece : tokens;
}

int64_t Scheduler::priority(const Request& r) const {
  return r.request.priority + (r.runs ? 0 : static_cast<int64_t>((steps_ - r.since) / options_.patience));
}

bool Scheduler::before(const Request& a, const Request& b) const {
  if (priority(a) != priority(b)) return priority(a) > priority(b);
  if (a.runs != b.runs) return a.runs;  // what was begun is ended
  const double x = served_.at(a.request.principal), y = served_.at(b.request.principal);
  return x != y ? x < y : a.order < b.order;
}

void Scheduler::serve(const Request& r, double cost) {
  served_[r.request.principal] += cost;
}

bool Scheduler::waits_for_another(const Request& r, const SchedMemory& memory) const {
  const std::vector<int32_t>& prompt = *r.request.prompt;
  size_t cached = SIZE_MAX;
  for (const auto& [id, other] : requests_) {
    const std::vector<int32_t>& read = *other.request.prompt;
    if (!other.runs || other.computed >= read.size() || other.request.space != r.request.space) continue;
    const auto end = std::mismatch(prompt.begin(), prompt.end(), read.begin(), read.end()).first;
    const size_t common = std::min(static_cast<size_t>(end - prompt.begin()), r.request.shareable);
    if (common < options_.block_tokens || other.computed >= common) continue;
    if (cached == SIZE_MAX) cached = memory.cached(r.request.id);
    if (common >= cached + options_.block_tokens) return true;
  }
  return false;
}

void Scheduler::stop(Request& r, SchedMemory& memory) {
  memory.release(r.request.id);
  r.runs = false;
  r.computed = 0;
  r.since = steps_;
  ++waiting_;
}

void Scheduler::give_way(Request& r, SchedMemory& memory, SchedStep& step) {
  stop(r, memory);
  step.gave_way.push_back(r.request.id);
}

bool Scheduler::postpone(uint64_t id, SchedMemory& memory) {
  Request& r = requests_.at(id);
  GODWIT_CHECK(r.runs);
  if (running() == 1) return false;
  stop(r, memory);
  return true;
}

// Lowest priority, then cheapest to compute again, then newest. Nobody gives way to one of lower priority.
Scheduler::Request* Scheduler::who_gives_way(const Request& r) {
  Request* found = nullptr;
  for (auto& [id, other] : requests_) {
    if (!other.runs || other.in_step || &other == &r || priority(other) > priority(r)) continue;
    const auto rank = [&](const Request& x) {
      return std::tuple(priority(x), chunk_cost(0, x.computed), UINT64_MAX - x.order);
    };
    if (found == nullptr || rank(other) < rank(*found)) found = &other;
  }
  return found;
}

bool Scheduler::make_room(Request& r, size_t tokens, SchedMemory& memory, SchedStep& step) {
  while (!memory.reserve(r.request.id, tokens)) {
    Request* other = who_gives_way(r);
    if (other == nullptr) return false;
    give_way(*other, memory, step);
  }
  return true;
}

void Scheduler::take_decodes(SchedMemory& memory, SchedStep& step) {
  std::vector<Request*> list;
  for (auto& [id, r] : requests_)
    if (r.decodes()) list.push_back(&r);
  std::sort(list.begin(), list.end(), [&](const Request* a, const Request* b) {
    return priority(*a) != priority(*b) ? priority(*a) > priority(*b) : a->order < b->order;
  });
  for (Request* r : list) {
    if (!r->runs) continue;  // it gave way to one before it
    if (!make_room(*r, 1, memory, step)) {
      if (running() > 1) {
        give_way(*r, memory, step);
      } else {
        step.failed.push_back(r->request.id);
      }
      continue;
    }
    const double cost = token_cost(static_cast<double>(r->computed));
    r->in_step = true;
    step.decodes.push_back(r->request.id);
    step.cost += cost;
    serve(*r, cost);
  }
}

// `before` are those that come first and have no room. Smaller ones may overtake them, but not for ever.
bool Scheduler::start(Request& r, std::vector<Request*>& before, SchedMemory& memory, SchedStep& step) {
  if (running() >= options_.most_running) return false;
  for (const Request* other : before)
    if (other->overtaken >= options_.most_overtaken) return false;
  if (waits_for_another(r, memory)) return false;
  if (running() > 0 && !memory.fits(r.request.id, r.tokens)) {
    before.push_back(&r);
    return false;
  }
  for (Request* other : before) ++other->overtaken;
  r.overtaken = 0;
  r.runs = true;
  --waiting_;
  r.computed = memory.begin(r.request.id);
  GODWIT_CHECK(r.computed < r.tokens);
  step.began.push_back(r.request.id);
  return true;
}

void Scheduler::take_chunks(SchedMemory& memory, SchedStep& step) {
  std::vector<Request*> list;
  for (auto& [id, r] : requests_)
    if (!r.in_step) list.push_back(&r);
  std::sort(list.begin(), list.end(), [&](const Request* a, const Request* b) { return before(*a, *b); });
  size_t left = options_.step_tokens;
  std::vector<Request*> without_room;
  for (Request* r : list) {
    if (left == 0) break;
    const bool gave_way = std::find(step.gave_way.begin(), step.gave_way.end(), r->request.id) != step.gave_way.end();
    const bool gone = std::find(step.failed.begin(), step.failed.end(), r->request.id) != step.failed.end();
    if (gave_way || gone) continue;
    double budget = options_.step_cost - step.cost;
    if (step.chunks.empty())  // prompts go on, too, if slowly
      budget = std::max(budget, std::min(options_.step_cost, chunk_cost(r->computed, options_.least_tokens)));
    if (budget < 1) break;
    if (!r->runs && !start(*r, without_room, memory, step)) continue;
    const size_t tokens = chunk_tokens(*r, left, budget, step.chunks.empty());
    if (tokens == 0) continue;
    // A prompt waits for memory, unless nothing else goes on: then others give way to it, or it can never be read.
    if (step.empty() ? !make_room(*r, tokens, memory, step) : !memory.reserve(r->request.id, tokens)) {
      if (step.empty()) step.failed.push_back(r->request.id);
      continue;
    }
    const double cost = chunk_cost(r->computed, tokens);
    step.chunks.push_back({r->request.id, r->computed, tokens, r->computed + tokens == r->tokens});
    r->in_step = true;
    step.cost += cost;
    left -= tokens;
    serve(*r, cost);
  }
}

SchedStep Scheduler::next(SchedMemory& memory) {
  SchedStep step;
  ++steps_;
  for (auto& [id, r] : requests_) r.in_step = false;
  take_decodes(memory, step);
  take_chunks(memory, step);
  for (uint64_t id : step.decodes) ++requests_.at(id).computed;
  for (const SchedStep::Chunk& chunk : step.chunks) requests_.at(chunk.id).computed += chunk.tokens;
  for (uint64_t id : step.failed) remove(id, memory);
  return step;
}

}  // namespace godwit
