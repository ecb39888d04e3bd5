#include "text/grammar/constraint.h"

#include <algorithm>
#include <map>

#include "base/result.h"

namespace godwit {
namespace {

constexpr size_t kMostSteps = 16'384;                // sets of places that walks remember
constexpr size_t kMostKeptBytes = size_t{48} << 20;  // of what walks found

void set_bit(TokenMask& mask, TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

// Sets of places above an unknown stack, and what each byte makes of them.
class Steps {
 public:
  Steps(const Grammar& grammar, int most_frames) : g_(grammar), most_frames_(most_frames) { sets_.emplace_back(); }

  size_t size() const { return sets_.size(); }
  bool may_end(uint32_t id) const { return sets_[id].places->may_end; }
  int deepest() const { return deepest_; }
  void forget_deepest() { deepest_ = 0; }

  // The state alone, without what it calls and what follows its end.
  uint32_t bare(uint32_t state) { return id_of({{{state, 0}}, false}, 0); }

  Result<uint32_t> settled(uint32_t state) {
    seeds_.assign(1, {state, 0});
    return follow();
  }

  Result<uint32_t> step(uint32_t id, uint8_t byte) {
    const auto c = static_cast<size_t>(g_.class_of(byte));
    if (const uint32_t known = sets_[id].next[c]; known != kUnknown) {
      deepest_ = std::max(deepest_, sets_[known].deepest);
      return known;
    }
    seeds_.clear();
    for (const GrammarPlace& place : sets_[id].places->list)
      if (const uint32_t to = g_.next(place.state, static_cast<int>(c)); to != 0) seeds_.push_back({to, place.stack});
    GODWIT_ASSIGN(const uint32_t to, follow());
    sets_[id].next[c] = to;
    return to;
  }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  struct Set {
    const GrammarPlaces* places = nullptr;
    std::vector<uint32_t> next;  // per class of bytes; 0: nothing fits
    int deepest = 0;             // frames that it took to find it
  };
  struct Less {
    bool operator()(const GrammarPlaces& a, const GrammarPlaces& b) const {
      return a.may_end != b.may_end ? a.may_end < b.may_end : a.list < b.list;
    }
  };

  Result<uint32_t> follow() {
    int deepest = 0;
    GODWIT_ASSIGN(GrammarPlaces places, settle(g_, stacks_, seeds_, most_frames_, &deepest));
    deepest_ = std::max(deepest_, deepest);
    if (places.list.empty() && !places.may_end) return 0;
    if (sets_.size() >= kMostSteps)
      return errorf(ErrorCode::kExhausted, "the grammar is too complex: one token can lead to more than {} places",
                    kMostSteps);
    return id_of(std::move(places), deepest);
  }

  uint32_t id_of(GrammarPlaces places, int deepest) {
    const auto [it, added] = ids_.try_emplace(std::move(places), static_cast<uint32_t>(sets_.size()));
    if (added) sets_.push_back({&it->first, std::vector<uint32_t>(static_cast<size_t>(g_.classes()), kUnknown), 0});
    Set& set = sets_[it->second];
    set.deepest = std::max(set.deepest, deepest);
    return it->second;
  }

  const Grammar& g_;
  const int most_frames_;
  GrammarStacks stacks_;
  std::map<GrammarPlaces, uint32_t, Less> ids_;
  std::vector<Set> sets_;  // 0: nothing fits
  std::vector<GrammarPlace> seeds_;
  int deepest_ = 0;
};

// What a walk from the root of the tree found without leaving its frame.
struct Found {
  std::vector<TokenId> few;    // the tokens, one way ...
  TokenMask many;              // ... or the other
  std::vector<uint32_t> ends;  // nodes of the tree where the frame may end
  int deepest = 0;             // with at least so many frames left, nothing else would be found
  size_t bytes() const { return sizeof(Found) + few.size() * 4 + many.size() * 8 + ends.size() * 4; }
};

}  // namespace

class Constraint::Walks {
 public:
  Walks(const Grammar& grammar, const TokenTrie& trie) : g_(grammar), trie_(trie) {}

  // Adds the tokens that fit from this place on.
  Status add(const GrammarStacks& stacks, GrammarPlace place, TokenMask& mask) {
    const int left = Grammar::kMostFrames - stacks.frames(place.stack);
    GODWIT_ASSIGN(const Found* found, find(place.state, Grammar::kMostFrames));
    if (found->deepest > left) {
      GODWIT_ASSIGN(found, find(place.state, left));
    }
    for (size_t i = 0; i < found->many.size(); ++i) mask[i] |= found->many[i];
    for (const TokenId token : found->few) set_bit(mask, token);
    if (place.stack == 0) return {};
    for (const uint32_t node : found->ends) GODWIT_TRY(add_below(stacks, place.stack, node, mask));
    return {};
  }

  void trim() {
    size_t steps = 0;
    for (const auto& [left, one] : steps_) steps += one.size();
    if (steps > kMostSteps / 2) steps_.clear();
    if (kept_bytes_ > kMostKeptBytes) found_.clear(), kept_bytes_ = 0;
  }

 private:
  Steps& steps(int left) { return steps_.try_emplace(left, g_, left).first->second; }

  // Tokens below `node`, whose bytes so far end the frame above `stack`.
  Status add_below(const GrammarStacks& stacks, uint32_t stack, uint32_t node, TokenMask& mask) {
    const uint32_t below = stacks.below(stack);
    Steps& s = steps(Grammar::kMostFrames - stacks.frames(below));
    GODWIT_ASSIGN(const uint32_t start, s.settled(stacks.top(stack)));
    std::vector<uint32_t> ends;
    if (s.may_end(start)) ends.push_back(node);
    GODWIT_TRY(walk(
        s, start, node, [&](TokenId token) { set_bit(mask, token); }, ends));
    if (below != 0)
      for (const uint32_t end : ends) GODWIT_TRY(add_below(stacks, below, end, mask));
    return {};
  }

  Result<const Found*> find(uint32_t state, int left) {
    const auto [it, added] = found_.try_emplace({state, left});
    Found& found = it->second;
    if (!added) return &found;
    const auto search = [&]() -> Status {
      Steps& s = steps(left);
      s.forget_deepest();
      std::vector<TokenId> tokens;
      GODWIT_TRY(walk(
          s, s.bare(state), 0, [&](TokenId token) { tokens.push_back(token); }, found.ends));
      found.deepest = s.deepest();
      const auto vocab = static_cast<size_t>(trie_.vocab_size());
      if (tokens.size() < vocab / 32) {
        found.few = std::move(tokens);
      } else {
        found.many.resize((vocab + 63) / 64);
        for (const TokenId token : tokens) set_bit(found.many, token);
      }
      return {};
    };
    if (Status status = search(); !status) {
      found_.erase(it);
      return tl::unexpected(std::move(status).error());
    }
    kept_bytes_ += found.bytes();
    return &found;
  }

  // Walks what is below `node`; `on_token` gets every token that fits, `ends` the nodes where the frame may end.
  template <class Fn>
  Status walk(Steps& s, uint32_t start, uint32_t node, const Fn& on_token, std::vector<uint32_t>& ends) const {
    uint32_t at_depth[TokenTrie::kMostBytes + 1];
    at_depth[trie_.node(node).depth] = start;
    for (uint32_t i = node + 1, end = trie_.node(node).next; i < end;) {
      const TokenTrie::Node& n = trie_.node(i);
      GODWIT_ASSIGN(const uint32_t to, s.step(at_depth[n.depth - 1], n.byte));
      if (to == 0) {
        i = n.next;
        continue;
      }
      at_depth[n.depth] = to;
      for (const TokenId token : trie_.tokens(i)) on_token(token);
      if (s.may_end(to)) ends.push_back(i);
      ++i;
    }
    return {};
  }

  const Grammar& g_;
  const TokenTrie& trie_;
  std::map<int, Steps> steps_;                       // by frames that are left
  std::map<std::pair<uint32_t, int>, Found> found_;  // by state and frames that are left
  size_t kept_bytes_ = 0;
};

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), walks_(std::make_unique<Walks>(grammar_, *trie_)) {}

Constraint::~Constraint() = default;

Result<ConstraintState> ConstraintState::start(std::shared_ptr<const Constraint> constraint) {
  ConstraintState state;
  state.constraint_ = std::move(constraint);
  const Grammar& grammar = state.constraint_->grammar();
  std::vector<GrammarPlace> seeds = {{grammar.start(), 0}};
  GODWIT_ASSIGN(state.places_, settle(grammar, state.stacks_, seeds, Grammar::kMostFrames));
  return state;
}

Status ConstraintState::allowed(TokenMask& mask) const {
  mask.assign((static_cast<size_t>(constraint_->trie()->vocab_size()) + 63) / 64, 0);
  std::lock_guard lock(constraint_->mutex_);
  constraint_->walks_->trim();
  for (const GrammarPlace& place : places_.list) GODWIT_TRY(constraint_->walks_->add(stacks_, place, mask));
  return {};
}

Result<bool> ConstraintState::advance(TokenId token) {
  const std::string& bytes = constraint_->trie()->bytes(token);
  if (bytes.empty()) return false;
  return advance(bytes);
}

Result<bool> ConstraintState::advance(std::string_view bytes) {
  const Grammar& grammar = constraint_->grammar();
  std::vector<GrammarPlace> seeds;
  for (const char c : bytes) {
    const int byte_class = grammar.class_of(static_cast<uint8_t>(c));
    for (const GrammarPlace& place : places_.list)
      if (const uint32_t to = grammar.next(place.state, byte_class); to != 0) seeds.push_back({to, place.stack});
    GODWIT_ASSIGN(places_, settle(grammar, stacks_, seeds, Grammar::kMostFrames));
  }
  return !places_.list.empty() || places_.may_end;
}

}  // namespace godwit
