#include "kv/prefix_states.h"

#include <algorithm>

namespace godwit {
namespace {

constexpr uint64_t kPrime = 0x100000001b3;

uint64_t hash_of(std::string_view space) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : space) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

uint64_t hash_on(uint64_t hash, std::span<const int32_t> tokens) {
  for (int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * kPrime;
  return hash;
}

}  // namespace

const PrefixStates::State* PrefixStates::find(std::string_view space, std::span<const int32_t> tokens) const {
  const State* found = nullptr;
  uint64_t hash = hash_of(space);
  for (size_t end = options_.piece_tokens; end <= tokens.size(); end += options_.piece_tokens) {
    hash = hash_on(hash, tokens.subspan(end - options_.piece_tokens, options_.piece_tokens));
    const auto it = states_.find(hash);
    if (it == states_.end()) continue;
    const State& state = it->second;
    if (state.space == space && state.tokens == end &&
        std::equal(tokens.begin(), tokens.begin() + end, state.prompt->begin()))
      found = &state;
  }
  return found;
}

double PrefixStates::worth(size_t tokens) const {
  const auto n = static_cast<double>(tokens);
  return spent_ + n * (1 + n / 2 / options_.attention_tokens);
}

void PrefixStates::use(const State& state) {
  const_cast<State&>(state).worth = worth(state.tokens);  // one of states_
}

void PrefixStates::remember(std::string_view space, const std::shared_ptr<const std::vector<int32_t>>& prompt,
                            size_t tokens, const KvSequence& sequence, const KvRetention& retention) {
  GODWIT_CHECK(tokens > 0 && tokens % options_.piece_tokens == 0 && tokens <= prompt->size() &&
               tokens == static_cast<size_t>(sequence.next_position()));
  const std::span<const int32_t> all = std::span(*prompt).first(tokens);
  if (const State* there = find(space, all); there != nullptr && there->tokens == tokens) return use(*there);
  const size_t beside = retention.bytes_beside();
  if (beside > options_.most_bytes_beside) return;
  while (bytes_beside_ + beside > options_.most_bytes_beside) drop(least(false));
  const uint64_t hash = hash_on(hash_of(space), all);
  if (const auto other = states_.find(hash); other != states_.end()) drop(other);
  if (!pool_.take_beside(beside)) return;
  auto fork = sequence.fork();
  auto kept = std::make_unique<KvRetention>(retention, *fork);
  states_.emplace(hash,
                  State{std::string(space), prompt, tokens, std::move(fork), std::move(kept), beside, worth(tokens)});
  bytes_beside_ += beside;
  bytes_.reset();
}

void PrefixStates::drop(States::iterator state) {
  spent_ = std::max(spent_, state->second.worth);
  bytes_beside_ -= state->second.bytes_beside;
  pool_.give_beside(state->second.bytes_beside);
  states_.erase(state);
  bytes_.reset();
}

PrefixStates::States::iterator PrefixStates::least(bool alone) {
  auto found = states_.end();
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    if (found != states_.end() && it->second.worth >= found->second.worth) continue;
    if (!alone || it->second.bytes_beside > 0 || it->second.sequence->holds_alone()) found = it;
  }
  return found;
}

size_t PrefixStates::release(size_t pages) {
  const size_t before = pool_.bytes_in_use();
  const auto freed = [&] { return (before - pool_.bytes_in_use()) / pool_.smallest_page_bytes(); };
  while (freed() < pages) {
    const auto state = least(true);
    if (state == states_.end()) break;
    drop(state);
  }
  return freed();
}

void PrefixStates::forget_all() {
  while (!states_.empty()) drop(states_.begin());
}

size_t PrefixStates::bytes() const {
  if (!bytes_) {
    PageCounts counts;
    for (const auto& [hash, state] : states_) state.sequence->count_references(counts);
    bytes_ = pool_.bytes_of(counts) + bytes_beside_;
  }
  return *bytes_;
}

size_t PrefixStates::releasable_bytes() const {
  if (releasable_at_ == pool_.changes()) return releasable_;
  releasable_at_ = pool_.changes();
  PageCounts counts;
  for (const auto& [hash, state] : states_) state.sequence->count_references(counts);
  releasable_ = pool_.bytes_held_by(counts) + bytes_beside_;
  return releasable_;
}

}  // namespace godwit
