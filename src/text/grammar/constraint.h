// A grammar over the tokens of one vocabulary: what an answer must be.
//
// Which tokens may come next is found by walking the vocabulary's tree of bytes against the grammar. What a walk finds
// while it stays within the frame it began in depends on the state alone, not on the stack below, and is kept: the
// tokens that fit, and the places of the tree where the frame may end. Only from those places on is the tree walked
// again, with what the stack holds; they are few (of a string: behind its closing quote).
//
// A Constraint is shared by all answers that are held to it and may be used from any thread. A ConstraintState is one
// answer's place; one thread at a time, a copy goes on by itself.
#pragma once

#include <memory>
#include <mutex>

#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace godwit {

class Constraint {
 public:
  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie);
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const Grammar& grammar() const { return grammar_; }
  const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }

 private:
  friend class ConstraintState;
  class Walks;
  const Grammar grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;  // of walks_
  std::unique_ptr<Walks> walks_;
};

// One bit per token.
using TokenMask = std::vector<uint64_t>;

class ConstraintState {
 public:
  static Result<ConstraintState> start(std::shared_ptr<const Constraint> constraint);

  // Sets the bits of all tokens that may come next. kExhausted for a grammar that is too ambiguous.
  Status allowed(TokenMask& mask) const;
  // False when the token may not come next; the place is then lost. kExhausted as above.
  Result<bool> advance(TokenId token);
  Result<bool> advance(std::string_view bytes);

  bool may_end() const { return places_.may_end; }
  bool must_end() const { return places_.list.empty(); }

 private:
  ConstraintState() = default;
  std::shared_ptr<const Constraint> constraint_;
  GrammarStacks stacks_;
  GrammarPlaces places_;
};

}  // namespace godwit
