#include "engine/service_ranks.h"

#include <algorithm>

namespace godwit {
namespace {

size_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Service::Impl::OverRanks::~OverRanks() {
  for (const auto& one : kept_) team_.drop(one->id);
}

size_t Service::Impl::OverRanks::whole_pages(size_t tokens) const {
  const auto page_tokens = static_cast<size_t>(service_.engine->pool->format().page_tokens);
  return tokens / page_tokens * page_tokens;
}

size_t Service::Impl::OverRanks::kept_blocks() const {
  size_t tokens = 0;
  for (const auto& one : kept_) tokens += one->tokens;
  return tokens / static_cast<size_t>(service_.engine->pool->format().page_tokens);
}

Service::Impl::OverRanks::Found Service::Impl::OverRanks::find(const Work& work) const {
  Found best;
  const std::span<const int32_t> wanted = service_.sharing(work);
  const auto look = [&](std::span<const int32_t> there, const Found& found) {
    const size_t tokens = whole_pages(common_tokens(wanted, there));
    if (tokens <= best.tokens || tokens < static_cast<size_t>(found.sequence->shortest_exact())) return;
    best = found;
    best.tokens = tokens;
  };
  for (const auto& one : kept_)
    if (one->space == work.space)
      look(std::span(*one->prompt).first(one->tokens), {0, one->id, one->sequence.get(), one.get()});
  for (const auto& [id, tokens] : read_)
    if (const Work& other = *service_.works.at(id); id != work.id && other.space == work.space)
      look(std::span(*other.prompt).first(tokens), {0, other.team_sequence, other.sequence.get(), nullptr});
  return best;
}

size_t Service::Impl::OverRanks::cached(uint64_t id) const {
  return find(*service_.works.at(id)).tokens;
}

bool Service::Impl::OverRanks::fits(uint64_t, size_t tokens) const {
  std::vector<uint64_t> droppable;
  for (const auto& one : kept_) droppable.push_back(one->id);
  return team_.has_room(static_cast<int32_t>(tokens + 1), droppable);
}

size_t Service::Impl::OverRanks::begin(uint64_t id) {
  Work& work = *service_.works.at(id);
  service_.begins(work);
  const Found found = find(work);
  if (found.tokens == 0) {
    work.sequence = team_.next_share();
    work.team_sequence = team_.create(*work.sequence);
    (void)team_.fit_prompt(work.team_sequence, static_cast<int32_t>(work.prompt->size()));  // nothing has to move
    return 0;
  }
  const auto tokens = static_cast<int32_t>(found.tokens);
  work.sequence = found.sequence->fork();
  work.team_sequence = team_.fork(found.id, *work.sequence);
  team_.truncate(work.team_sequence, tokens);
  if (found.kept != nullptr) found.kept->used = ++uses_;
  if (work.writer.tokens() == 0) work.cached = tokens;
  remember(work, found.tokens);
  return found.tokens;
}

void Service::Impl::OverRanks::remember(const Work& work, size_t tokens) {
  read_[work.id] = tokens;
  const size_t whole = whole_pages(tokens);
  if (!service_.engine->pool->format().seals || tokens < work.prompt->size() || service_.shareable(work) == 0 ||
      whole < static_cast<size_t>(work.sequence->shortest_exact()))
    return;
  auto copy = work.sequence->fork();
  const uint64_t id = team_.fork(work.team_sequence, *copy);
  keep({work.space, work.prompt, whole, id, std::move(copy), ++uses_});
}

bool Service::Impl::OverRanks::reserve(uint64_t id, size_t tokens) {
  const Work& work = *service_.works.at(id);
  // An answer for which there is no room elsewhere is made where its prompt is.
  if (work.sequence->next_position() >= static_cast<int32_t>(work.prompt->size()))
    (void)team_.fit_answer(work.team_sequence);
  while (!team_.reserve(work.team_sequence, static_cast<int32_t>(tokens)))
    if (!status() || (!team_.widen(work.team_sequence) && !forget_oldest())) return false;
  return true;
}

void Service::Impl::OverRanks::release(uint64_t id) {
  Work& work = *service_.works.at(id);
  if (!work.sequence) return;
  const auto read = read_.find(id);
  size_t tokens = read == read_.end() || service_.shareable(work) == 0 ? 0 : whole_pages(read->second);
  if (tokens < static_cast<size_t>(work.sequence->shortest_exact())) tokens = 0;
  if (read != read_.end()) read_.erase(read);
  Beginning left{work.space, work.prompt, tokens, work.team_sequence, std::move(work.sequence), ++uses_};
  keep(std::move(left));
}

// What begins like it and is no longer has nothing that it has not.
void Service::Impl::OverRanks::keep(Beginning beginning) {
  const auto covers = [&](const Beginning& longer, const Beginning& shorter) {
    return longer.space == shorter.space && longer.tokens >= shorter.tokens &&
           common_tokens(*longer.prompt, std::span(*shorter.prompt).first(shorter.tokens)) == shorter.tokens;
  };
  for (const auto& one : kept_) {
    if (!covers(*one, beginning)) continue;
    one->used = beginning.used;
    beginning.tokens = 0;
  }
  if (beginning.tokens == 0) return team_.drop(beginning.id);
  std::erase_if(kept_, [&](const std::unique_ptr<Beginning>& one) {
    if (!covers(beginning, *one)) return false;
    team_.drop(one->id);
    return true;
  });
  team_.truncate(beginning.id, static_cast<int32_t>(beginning.tokens));
  kept_.push_back(std::make_unique<Beginning>(std::move(beginning)));
}

bool Service::Impl::OverRanks::forget_oldest() {
  const auto oldest =
      std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) { return a->used < b->used; });
  if (oldest == kept_.end()) return false;
  team_.drop((*oldest)->id);
  kept_.erase(oldest);
  return true;
}

// All sequences in one step; each row's logits come from the rank that computed it. A failure is in status().
void Service::Impl::OverRanks::forward(Phase phase, std::span<const Rows> list, std::vector<Said>& said) {
  std::vector<Team::Part> parts;
  for (const Rows& rows : list) {
    const auto count = static_cast<int32_t>(rows.count);
    parts.push_back({.sequence = rows.work->team_sequence,
                     .begin = static_cast<int32_t>(rows.begin),
                     .tokens = std::span(rows.work->tokens).subspan(rows.begin, rows.count),
                     .first_logits = rows.samples ? count - 1 : count});
  }
  (void)team_.step(phase, parts, [&](size_t part, int32_t, std::span<const float> logits) {
    said.push_back(service_.sample(*list[part].work, logits));
  });
}

}  // namespace godwit
