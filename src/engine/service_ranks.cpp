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
    if (const Work& other = *service_.works.at(id);
        id != work.id && other.space == work.space && team_.whole(other.team_sequence) &&
        !(service_.engine->pool->format().seals && other.sequence->amid_step()))  // which pages are sealed is in flux
      look(std::span(*other.prompt).first(tokens), {0, other.team_sequence, other.sequence.get(), nullptr});
  return best;
}

size_t Service::Impl::OverRanks::cached(uint64_t id) const {
  return find(*service_.works.at(id)).tokens;
}

// The number of ranks that a request does not say is the engine's.
SequenceTerms Service::Impl::OverRanks::terms(const Work& work) const {
  return {service_.ranks_for(work.request.ranks), work.rules};
}

bool Service::Impl::OverRanks::fits(uint64_t id, size_t tokens) const {
  std::vector<uint64_t> droppable;
  for (const auto& one : kept_) droppable.push_back(one->id);
  const SequenceTerms wanted = terms(*service_.works.at(id));
  const KvShape shape = service_.engine->model->kv_shape();
  const size_t entries = wanted.rules ? wanted.rules->residence(shape).most_slots(tokens) : tokens;
  return team_.has_room({static_cast<int32_t>(tokens + 1), static_cast<int32_t>(entries + 1),
                         wanted.ranks.prefill > 0 ? wanted.ranks.prefill : team_.size()},
                        droppable);
}

// On the ranks that it asks for; without such a wish where the beginning lies, if there is no room on more.
bool Service::Impl::OverRanks::begin_from(Work& work, const Found& found) {
  const auto tokens = static_cast<int32_t>(found.tokens);
  const SequenceTerms wanted = terms(work);
  const bool asked = wanted.ranks.prefill > 0;
  work.sequence = found.sequence->fork();
  work.team_sequence = team_.create_from(found.id, tokens, *work.sequence, wanted);
  if (found.kept != nullptr) found.kept->used = ++uses_;
  Status fitted;
  do {
    fitted = team_.fit_prompt(work.team_sequence, static_cast<int32_t>(work.prompt->size()) - tokens);
  } while (!fitted && asked && status() && forget_oldest());
  if (fitted || !asked) return true;
  team_.drop(work.team_sequence);
  work.sequence.reset();
  return false;
}

size_t Service::Impl::OverRanks::begin(uint64_t id) {
  Work& work = *service_.works.at(id);
  service_.begins(work);
  const Found found = find(work);
  if (found.tokens == 0 || !begin_from(work, found)) {
    work.sequence = team_.next_share();
    work.team_sequence = team_.create(*work.sequence, terms(work));
    (void)team_.fit_prompt(work.team_sequence, static_cast<int32_t>(work.prompt->size()));  // nothing has to move
    return 0;
  }
  if (work.writer.tokens() == 0) work.cached = static_cast<int>(found.tokens);
  remember(work, found.tokens);
  return found.tokens;
}

void Service::Impl::OverRanks::remember(const Work& work, size_t tokens) {
  if (!work.sequence || !status()) return;  // it was postponed, or ranks are lost amid the step
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
  if (tokens < static_cast<size_t>(work.sequence->shortest_exact()) || !team_.whole(work.team_sequence)) tokens = 0;
  work.dropped.reset();
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

// What a policy has left of it lies on all ranks: these are asked when that may have changed, by a drop or a page.
void Service::Impl::OverRanks::see_use(Work& work, int32_t end) {
  if (!work.rules || team_.whole(work.team_sequence)) return;
  const bool page = end % service_.engine->pool->format().page_tokens == 0;
  if (!work.dropped || page || team_.shortest_exact(work.team_sequence) == end)
    work.dropped = team_.use(work.team_sequence);
}

// A drop in pages that others have copies what stays: beginnings that are kept go as long as there is no room for that.
void Service::Impl::OverRanks::make_way(const Team::Part& part) {
  const int32_t end = part.begin + static_cast<int32_t>(part.tokens.size());
  while (!team_.has_room({end, end, team_.degree(part.sequence)}, {}) && status() && forget_oldest()) continue;
}

// All sequences in one step; each row's logits come from the rank that computed it. A failure is in status(). A request
// that lacks memory waits its turn again: its policy may drop nothing later than a session's would.
void Service::Impl::OverRanks::forward(Phase phase, std::vector<Rows> list, std::vector<Said>& said) {
  std::erase_if(list, [](const Rows& rows) { return !rows.work->sequence; });
  std::vector<Team::Part> parts;
  for (const Rows& rows : list) {
    const auto count = static_cast<int32_t>(rows.count);
    parts.push_back({.sequence = rows.work->team_sequence,
                     .begin = static_cast<int32_t>(rows.begin),
                     .tokens = std::span(rows.work->tokens).subspan(rows.begin, rows.count),
                     .first_logits = rows.samples ? count - 1 : count,
                     .prompt_ends = phase == Phase::kPrefill && rows.begin + rows.count == rows.work->prompt->size()});
  }
  if (parts.empty()) return;
  for (const Team::Part& part : parts)
    if (team_.may_copy(part)) make_way(part);
  (void)team_.step(phase, parts, [&](size_t part, int32_t, std::span<const float> logits) {
    if (parts[part].outcome) said.push_back(service_.sample(*list[part].work, logits));
  });
  for (size_t i = 0; status() && i < parts.size(); ++i) {
    Work& work = *list[i].work;
    if (parts[i].outcome) {
      see_use(work, static_cast<int32_t>(list[i].begin + list[i].count));
      continue;
    }
    service_.postpone(work, said);
    while (forget_oldest()) continue;  // its own beginning, too: it begins with pages that are nobody else's
  }
}

}  // namespace godwit
