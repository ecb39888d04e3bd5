// KV methods that the requests of a service may choose. Immutable.
#pragma once

#include "kv/retention.h"
#include <godwit/service.h>

namespace godwit {

class KvChoices {
 public:
  struct Chosen {
    KvChoice text;
    std::shared_ptr<const KvRetentionRules> rules;  // null: every entry stays
  };
  struct Engine {
    Chosen own;
    KvShape shape;
    KvFormat format;
    int q_heads = 0, prefill_chunk = 0;
    bool equal_pages = true;
    int ranks = 1;
  };
  static Result<KvChoices> make(Engine engine, const KvAllowance& allowed);

  // The engine's own where nothing is chosen. An error is kInvalidArgument and says what may be chosen.
  Result<Chosen> choose(const std::optional<KvChoice>& choice, size_t prompt_tokens) const;

 private:
  // Made once: what a policy reads from a file is the same for all requests.
  struct Allowed {
    std::string spec;
    NamedKvPolicy method;  // of "none": nothing
  };
  explicit KvChoices(Engine engine) : engine_(std::move(engine)) {}
  Result<Allowed> allowed(std::string_view policy) const;
  Status check_budget(const KvRetentionRules& rules, std::string_view text, size_t prompt_tokens) const;

  Engine engine_;
  std::vector<Allowed> policies_;
  struct Limit {
    std::string text;
    KvBudget budget;
  };
  std::optional<Limit> least_, largest_;
};

}  // namespace godwit
