#include "text/grammar/constraint.h"

#include <algorithm>
#include <map>

#include "base/result.h"

namespace godwit {
namespace {

constexpr size_t kMostSteps = 8'192;                 // sets of places that walks remember
constexpr size_t kMostKeptBytes = size_t{16} << 20;  // of what walks found

void set_bit(TokenMask& mask, TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

// Sets of places above an unknown stack, and what each byte makes of them.
class Steps {
 public:
  static constexpr uint32_t kUnknown = UINT32_MAX;

  Steps(const Grammar& grammar, int most_frames) : g_(grammar), most_frames_(most_frames) {
    places_.push_back(nullptr);  // set 0: nothing fits
    traits_.emplace_back();
    next_.resize(static_cast<size_t>(g_.classes()));
  }

  size_t size() const { return places_.size(); }
  bool may_end(uint32_t id) const { return traits_[id].may_end; }
  int deepest(uint32_t id) const { return traits_[id].deepest; }  // frames that it took to find it

  // The state alone, without what it calls and what follows its end.
  uint32_t bare(uint32_t state) { return id_of({{{state, 0}}, false}, 0); }

  Result<uint32_t> settled(uint32_t state) {
    seeds_.assign(1, {state, 0});
    return follow();
  }

  uint32_t known(uint32_t id, uint8_t byte) const {
    return next_[static_cast<size_t>(id) * static_cast<size_t>(g_.classes()) + static_cast<size_t>(g_.class_of(byte))];
  }

  Result<uint32_t> learn(uint32_t id, uint8_t byte) {
    const int c = g_.class_of(byte);
    seeds_.clear();
    for (const GrammarPlace& place : places_[id]->list)
      if (const uint32_t to = g_.next(place.state, c); to != 0) seeds_.push_back({to, place.stack});
    GODWIT_ASSIGN(const uint32_t to, follow());
    return next_[static_cast<size_t>(id) * static_cast<size_t>(g_.classes()) + static_cast<size_t>(c)] = to;
  }

 private:
  struct Traits {
    bool may_end = false;
    int deepest = 0;
  };
  struct Less {
    bool operator()(const GrammarPlaces& a, const GrammarPlaces& b) const {
      return a.may_end != b.may_end ? a.may_end < b.may_end : a.list < b.list;
    }
  };

  Result<uint32_t> follow() {
    if (seeds_.empty()) return 0;
    int deepest = 0;
    GODWIT_ASSIGN(GrammarPlaces places, settle(g_, stacks_, seeds_, most_frames_, &deepest));
    if (places.list.empty() && !places.may_end) return 0;
    if (places_.size() >= kMostSteps)
      return errorf(ErrorCode::kExhausted, "the grammar is too complex: one token can lead to more than {} places",
                    kMostSteps);
    return id_of(std::move(places), deepest);
  }

  uint32_t id_of(GrammarPlaces places, int deepest) {
    const auto [it, added] = ids_.try_emplace(std::move(places), static_cast<uint32_t>(places_.size()));
    if (added) {
      places_.push_back(&it->first);
      traits_.push_back({it->first.may_end, 0});
      next_.resize(next_.size() + static_cast<size_t>(g_.classes()), kUnknown);
    }
    Traits& traits = traits_[it->second];
    traits.deepest = std::max(traits.deepest, deepest);
    return it->second;
  }

  const Grammar& g_;
  const int most_frames_;
  GrammarStacks stacks_;
  std::map<GrammarPlaces, uint32_t, Less> ids_;
  std::vector<const GrammarPlaces*> places_;  // per set
  std::vector<Traits> traits_;
  std::vector<uint32_t> next_;  // [sets, classes of bytes]
  std::vector<GrammarPlace> seeds_;
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
    return add_below(stacks, place.stack, found->ends, mask);
  }

  void trim() {
    size_t steps = 0;
    for (const auto& [left, one] : steps_) steps += one.size();
    if (steps > kMostSteps / 2) steps_.clear();
    if (kept_bytes_ > kMostKeptBytes) found_.clear(), kept_bytes_ = 0;
  }

 private:
  Steps& steps(int left) { return steps_.try_emplace(left, g_, left).first->second; }

  // Tokens below these nodes, whose bytes so far end the frame above `stack`.
  Status add_below(const GrammarStacks& stacks, uint32_t stack, std::span<const uint32_t> nodes, TokenMask& mask) {
    if (stack == 0 || nodes.empty()) return {};
    const uint32_t below = stacks.below(stack);
    Steps& s = steps(Grammar::kMostFrames - stacks.frames(below));
    GODWIT_ASSIGN(const uint32_t start, s.settled(stacks.top(stack)));
    std::vector<uint32_t> ends;
    for (const uint32_t node : nodes) {
      if (s.may_end(start)) ends.push_back(node);
      GODWIT_TRY(walk(s, start, node, [&](uint32_t at, uint32_t set) {
        for (const TokenId token : trie_.tokens(at)) set_bit(mask, token);
        if (s.may_end(set)) ends.push_back(at);
      }));
    }
    return add_below(stacks, below, ends, mask);
  }

  Result<const Found*> find(uint32_t state, int left) {
    const auto [it, added] = found_.try_emplace({state, left});
    Found& found = it->second;
    if (!added) return &found;
    const auto search = [&]() -> Status {
      Steps& s = steps(left);
      std::vector<TokenId> tokens;
      GODWIT_TRY(walk(s, s.bare(state), 0, [&](uint32_t at, uint32_t set) {
        for (const TokenId token : trie_.tokens(at)) tokens.push_back(token);
        if (s.may_end(set)) found.ends.push_back(at);
        found.deepest = std::max(found.deepest, s.deepest(set));
      }));
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

  // Tells every node below `node` that can be reached, and the set of places there.
  template <class Fn>
  Status walk(Steps& s, uint32_t start, uint32_t node, const Fn& on_node) const {
    uint32_t sets[TokenTrie::kMostBytes + 1];  // per depth
    sets[trie_.node(node).depth] = start;
    for (uint32_t i = node + 1, end = trie_.node(node).next; i < end;) {
      const TokenTrie::Node& n = trie_.node(i);
      const uint32_t from = sets[n.depth - 1];
      uint32_t to = s.known(from, n.byte);
      if (to == Steps::kUnknown) {
        GODWIT_ASSIGN(to, s.learn(from, n.byte));
      }
      if (to == 0) {
        i = n.next;
        continue;
      }
      sets[n.depth] = to;
      on_node(i, to);
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
