#include "text/grammar/grammar.h"

#include <algorithm>

#include "base/result.h"

namespace godwit {

uint32_t GrammarStacks::push(uint32_t stack, uint32_t state) {
  const auto [it, added] =
      ids_.try_emplace(static_cast<uint64_t>(stack) << 32 | state, static_cast<uint32_t>(frames_.size()));
  if (added) frames_.push_back({state, stack, frames_[stack].frames + 1});
  return it->second;
}

Result<GrammarPlaces> settle(const Grammar& grammar, GrammarStacks& stacks, std::vector<GrammarPlace>& seeds,
                             int most_frames, int* deepest) {
  GrammarPlaces places;
  std::vector<GrammarPlace> seen;
  while (!seeds.empty()) {
    const GrammarPlace place = seeds.back();
    seeds.pop_back();
    if (std::find(seen.begin(), seen.end(), place) != seen.end()) continue;
    seen.push_back(place);
    if (seen.size() > Grammar::kMostPlaces)
      return errorf(ErrorCode::kExhausted, "the grammar is too ambiguous: a text has more than {} readings",
                    Grammar::kMostPlaces);
    const Grammar::State& state = grammar.state(place.state);
    if (state.has_bytes) places.list.push_back(place);
    if (state.ends) {
      if (place.stack == 0)
        places.may_end = true;
      else
        seeds.push_back({stacks.top(place.stack), stacks.below(place.stack)});
    }
    for (const Grammar::Call& call : grammar.calls(place.state)) {
      const int needed = stacks.frames(place.stack) +
                         std::max(1 + grammar.state(call.rule_start).height, grammar.state(call.after).height);
      if (deepest != nullptr) *deepest = std::max(*deepest, needed);
      if (needed <= most_frames) seeds.push_back({call.rule_start, stacks.push(place.stack, call.after)});
    }
  }
  std::sort(places.list.begin(), places.list.end());
  return places;
}

}  // namespace godwit
