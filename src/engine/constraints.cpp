#include "engine/constraints.h"

#include <algorithm>

#include "engine/engine_impl.h"
#include "text/grammar/json_schema.h"
#include <godwit/engine.h>

namespace godwit {

Result<std::shared_ptr<const TokenTrie>> Constraints::trie() {
  std::lock_guard lock(mutex_);
  if (!trie_) {
    GODWIT_ASSIGN(TokenTrie made, TokenTrie::make(vocabulary_.tokenizer, vocab_size_, vocabulary_.end_tokens));
    trie_ = std::make_shared<const TokenTrie>(std::move(made));
  }
  return trie_;
}

std::shared_ptr<const Constraint> Constraints::find(const std::string& key) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return it->constraint;
}

Result<std::shared_ptr<const Constraint>> Constraints::get(const std::string& key,
                                                           const std::function<Result<Grammar>()>& make) {
  {
    std::lock_guard lock(mutex_);
    if (auto found = find(key)) return found;
  }
  GODWIT_ASSIGN(auto tokens, trie());
  GODWIT_ASSIGN(Grammar grammar, make());  // without the lock: it may take a while
  auto made = std::make_shared<const Constraint>(std::move(grammar), std::move(tokens));
  std::lock_guard lock(mutex_);
  if (auto found = find(key)) return found;  // another thread was faster
  entries_.push_front({key, made});
  if (entries_.size() > kMost) entries_.pop_back();
  return made;
}

Result<std::shared_ptr<const Constraint>> Engine::json_schema(std::string_view schema) const {
  return impl_->constraints->get("schema " + std::string(schema), [&] { return json_schema_grammar(schema); });
}

Result<std::shared_ptr<const Constraint>> Engine::json_object() const {
  return impl_->constraints->get("object", json_object_grammar);
}

}  // namespace godwit
