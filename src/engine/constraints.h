// What answers can be held to, compiled once: the engine's constraints by what they were made from. Requests that share
// a schema share its grammar and all masks that were found for it.
//
// Thread-safe. Holds the last kMost constraints; those in use live on by themselves.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "engine/vocabulary.h"
#include "text/grammar/constraint.h"

namespace godwit {

class Constraints {
 public:
  static constexpr size_t kMost = 32;

  Constraints(const Vocabulary& vocabulary, int vocab_size) : vocabulary_(vocabulary), vocab_size_(vocab_size) {}

  // `key` says what `make` makes.
  Result<std::shared_ptr<const Constraint>> get(const std::string& key, const std::function<Result<Grammar>()>& make);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
  };
  std::shared_ptr<const Constraint> find(const std::string& key);  // with mutex_ held
  Result<std::shared_ptr<const TokenTrie>> trie();

  const Vocabulary& vocabulary_;
  const int vocab_size_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;  // made when it is first needed
  std::list<Entry> entries_;               // last used first
};

}  // namespace godwit
