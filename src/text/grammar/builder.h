// Builds a Grammar from pieces: nodes, edges that consume a byte, edges that call a rule. What is built may be
// ambiguous and may contain dead ends; finish() makes it deterministic within each rule and cuts what leads nowhere.
//
// What is built comes from strangers, so it is bounded: past a limit nodes are no longer made, full() says so, and
// finish() fails. Nobody has to check on the way, but whoever loops over a number from a stranger should.
#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace godwit {

class GrammarBuilder {
 public:
  using Node = uint32_t;
  struct Rule {
    Node start = 0, end = 0;
  };
  static constexpr size_t kMostNodes = 200'000, kMostEdges = 800'000, kMostStates = 20'000;
  static constexpr size_t kMostWork = 20'000'000;  // elements of sets of nodes that finish() looks at

  Node node();
  Rule rule();
  void byte(Node from, uint8_t first, uint8_t last, Node to);
  void skip(Node from, Node to);  // consumes nothing
  void call(Node from, Rule rule, Node to);

  Node text(Node from, std::string_view bytes);  // where it ends
  void text(Node from, std::string_view bytes, Node to);
  void any_of(Node from, std::string_view bytes, Node to);  // one of these bytes
  // One character of UTF-8 between these two, surrogates left out.
  void characters(Node from, char32_t first, char32_t last, Node to);

  bool full() const { return nodes_.size() >= kMostNodes || edges_ >= kMostEdges; }

  // `what` is what errors call the source of the grammar.
  Result<Grammar> finish(Rule root, std::string_view what) const;

 private:
  friend class GrammarFinisher;
  struct Edge {
    enum Kind : uint8_t { kByte, kSkip, kCall } kind;
    uint8_t first, last;
    Node to, rule;  // `rule` is its start
  };
  void add(Node from, Edge edge);

  std::vector<std::vector<Edge>> nodes_;
  std::vector<bool> ends_;  // per node: the end of a rule
  size_t edges_ = 0;
};

}  // namespace godwit
