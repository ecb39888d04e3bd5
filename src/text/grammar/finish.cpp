// From nodes to deterministic states: subsets within a rule (calls count as one more kind of symbol), then the fewest
// frames that finish each state, and away with what cannot be finished.
#include <algorithm>
#include <map>

#include "base/result.h"
#include "text/grammar/builder.h"

namespace godwit {
namespace {

constexpr int kNever = 1 << 20;

}  // namespace

class GrammarFinisher {
 public:
  using Node = GrammarBuilder::Node;
  using Edge = GrammarBuilder::Edge;

  GrammarFinisher(const GrammarBuilder& builder, std::string_view what) : b_(builder), what_(what) {}

  Result<Grammar> run(GrammarBuilder::Rule root) {
    if (b_.full()) return too_large();
    find_classes();
    state_of({});  // state 0: none
    g_.start_ = rule_state(root.start);
    for (size_t i = 1; i < sets_.size(); ++i) {
      if (work_ > GrammarBuilder::kMostWork || sets_.size() > GrammarBuilder::kMostStates) return too_large();
      expand(static_cast<uint32_t>(i));
    }
    sets_.clear();
    find_heights();
    if (g_.states_[g_.start_].height >= kNever)
      return errorf(ErrorCode::kInvalidArgument, "{}: nothing satisfies it with at most {} levels of nesting", what_,
                    Grammar::kMostFrames);
    cut();
    return std::move(g_);
  }

 private:
  tl::unexpected<Error> too_large() const {
    return errorf(ErrorCode::kExhausted,
                  "{} is too complex: it needs more than {} nodes, {} states or the time for them; make it smaller, or "
                  "lower its bounds of length and count",
                  what_, GrammarBuilder::kMostNodes, GrammarBuilder::kMostStates);
  }

  void find_classes() {
    std::array<bool, 257> begins{};
    for (const auto& edges : b_.nodes_) {
      for (const Edge& edge : edges) {
        if (edge.kind != Edge::kByte) continue;
        begins[edge.first] = true;
        begins[edge.last + 1U] = true;
      }
    }
    int current = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++current;
      g_.class_of_[byte] = static_cast<uint8_t>(current);
    }
    g_.classes_ = current + 1;
  }

  // The nodes reachable without consuming anything, sorted.
  std::vector<Node> closure(std::vector<Node> nodes) {
    if (seen_.empty()) seen_.resize(b_.nodes_.size());
    ++stamp_;
    std::vector<Node> all;
    while (!nodes.empty()) {
      const Node node = nodes.back();
      nodes.pop_back();
      if (seen_[node] == stamp_) continue;
      seen_[node] = stamp_;
      all.push_back(node);
      for (const Edge& edge : b_.nodes_[node])
        if (edge.kind == Edge::kSkip) nodes.push_back(edge.to);
      work_ += 1 + b_.nodes_[node].size();
    }
    // Nodes that only lead on without consuming make no difference; without them more sets are equal.
    std::erase_if(all, [&](Node node) {
      const auto& edges = b_.nodes_[node];
      return !b_.ends_[node] &&
             std::all_of(edges.begin(), edges.end(), [](const Edge& edge) { return edge.kind == Edge::kSkip; });
    });
    std::sort(all.begin(), all.end());
    return all;
  }

  uint32_t state_of(std::vector<Node> set) {
    const auto [it, added] = ids_.try_emplace(std::move(set), static_cast<uint32_t>(sets_.size()));
    if (added) {
      sets_.push_back(&it->first);
      g_.states_.emplace_back();
      g_.next_.resize(g_.next_.size() + static_cast<size_t>(g_.classes_));
    }
    return it->second;
  }

  uint32_t rule_state(Node start) {
    const auto it = rules_.find(start);
    return it != rules_.end() ? it->second : rules_[start] = state_of(closure({start}));
  }

  void expand(uint32_t id) {
    const std::vector<Node>& set = *sets_[id];
    std::vector<std::vector<Node>> by_class(static_cast<size_t>(g_.classes_));
    std::map<Node, std::vector<Node>> by_rule;
    bool ends = false;
    for (const Node node : set) {
      ends |= b_.ends_[node];
      for (const Edge& edge : b_.nodes_[node]) {
        if (edge.kind == Edge::kCall) by_rule[edge.rule].push_back(edge.to);
        if (edge.kind != Edge::kByte) continue;
        for (int c = g_.class_of_[edge.first]; c <= g_.class_of_[edge.last]; ++c)
          by_class[static_cast<size_t>(c)].push_back(edge.to);
        work_ += static_cast<size_t>(g_.class_of_[edge.last] - g_.class_of_[edge.first]);
      }
    }
    const std::vector<Node>* last = nullptr;  // neighbouring classes often lead to the same place
    uint32_t last_target = 0;
    bool has_bytes = false;
    for (size_t c = 0; c < by_class.size(); ++c) {
      if (by_class[c].empty()) continue;
      if (last == nullptr || *last != by_class[c]) last_target = state_of(closure(by_class[c]));
      last = &by_class[c];
      g_.next_[id * by_class.size() + c] = last_target;
      has_bytes = true;
    }
    std::vector<Grammar::Call> calls;
    for (auto& [rule, targets] : by_rule) {
      const uint32_t start = rule_state(rule);
      calls.push_back({start, state_of(closure(std::move(targets)))});
    }
    g_.states_[id] = {static_cast<uint32_t>(g_.calls_.size()), static_cast<uint32_t>(g_.calls_.size() + calls.size()),
                      kNever, ends, has_bytes};
    g_.calls_.insert(g_.calls_.end(), calls.begin(), calls.end());
  }

  int call_height(const Grammar::Call& call) const {
    return std::min(std::max(1 + g_.states_[call.rule_start].height, g_.states_[call.after].height), kNever);
  }

  int height_by_others(uint32_t id) const {
    const Grammar::State& state = g_.states_[id];
    int best = state.ends ? 0 : kNever;
    for (int c = 0; c < g_.classes_; ++c)
      if (const uint32_t to = g_.next(id, c); to != 0) best = std::min(best, g_.states_[to].height);
    for (const Grammar::Call& call : g_.calls(id)) best = std::min(best, call_height(call));
    return best <= Grammar::kMostFrames ? best : kNever;
  }

  void find_heights() {
    const size_t count = g_.states_.size();
    std::vector<std::vector<uint32_t>> users(count);  // whose height depends on a state's
    for (uint32_t id = 1; id < count; ++id) {
      uint32_t last = 0;
      for (int c = 0; c < g_.classes_; ++c) {
        const uint32_t to = g_.next(id, c);
        if (to != 0 && to != last) users[to].push_back(id);
        last = to;
      }
      for (const Grammar::Call& call : g_.calls(id)) {
        users[call.rule_start].push_back(id);
        users[call.after].push_back(id);
      }
    }
    g_.states_[0].height = kNever;
    std::vector<uint32_t> work;
    for (uint32_t id = 1; id < count; ++id) work.push_back(id);
    while (!work.empty()) {
      const uint32_t id = work.back();
      work.pop_back();
      const int height = height_by_others(id);
      if (height >= g_.states_[id].height) continue;
      g_.states_[id].height = height;
      work.insert(work.end(), users[id].begin(), users[id].end());
    }
  }

  void cut() {
    std::vector<Grammar::Call> kept;
    for (uint32_t id = 1; id < g_.states_.size(); ++id) {
      Grammar::State& state = g_.states_[id];
      const auto row = g_.next_.begin() + static_cast<ptrdiff_t>(id) * g_.classes_;
      state.has_bytes = false;
      for (auto to = row; to != row + g_.classes_; ++to) {
        if (g_.states_[*to].height >= kNever) *to = 0;
        state.has_bytes |= *to != 0;
      }
      const auto begin = static_cast<uint32_t>(kept.size());
      for (const Grammar::Call& call : g_.calls(id))
        if (call_height(call) <= Grammar::kMostFrames) kept.push_back(call);
      state.calls_begin = begin;
      state.calls_end = static_cast<uint32_t>(kept.size());
    }
    g_.calls_ = std::move(kept);
  }

  const GrammarBuilder& b_;
  std::string_view what_;
  Grammar g_;
  std::map<std::vector<Node>, uint32_t> ids_;
  std::vector<const std::vector<Node>*> sets_;  // per state
  std::unordered_map<Node, uint32_t> rules_;    // states by starts of rules
  std::vector<uint32_t> seen_;
  uint32_t stamp_ = 0;
  size_t work_ = 0;
};

Result<Grammar> GrammarBuilder::finish(Rule root, std::string_view what) const {
  return GrammarFinisher(*this, what).run(root);
}

}  // namespace godwit
