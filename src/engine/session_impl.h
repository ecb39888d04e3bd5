// The state of a Session and its steps. Tokens [0, computed) have their K and V in the cache; the rest waits.
#pragma once

#include "engine/engine_impl.h"

namespace godwit {

struct Session::Impl {
  std::shared_ptr<Engine::Impl> engine;
  // Touched only with engine->mutex held.
  std::unique_ptr<KvSequence> sequence;
  std::unique_ptr<KvRetention> retention;  // null: every entry stays
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // after the last computed token, or empty

  explicit Impl(std::shared_ptr<Engine::Impl> e);
  ~Impl();

  size_t computed() const { return static_cast<size_t>(sequence->next_position()); }
  Status append(std::span<const TokenId> added);
  // Drops what was computed from token `count` on, and the logits with it; all of it where a KV policy has dropped
  // entries since.
  void forget_computed(size_t count);
  // Logits after a token, and that token's index.
  using OnLogits = std::function<void(size_t token, std::span<const float> logits)>;
  struct StepKind {
    AttentionPlanner& planner;
    bool prompt_ends = false;
  };
  // Runs tokens [computed, computed + count) as one step; `on_logits`, where given, gets all of its rows.
  Status step(size_t count, const StepKind& kind, const OnLogits& on_logits);
  Status compute_pending(const std::function<void(const Progress&)>& on_progress, std::stop_token stop,
                         const OnLogits& on_logits, bool prompt_ends);
};

}  // namespace godwit
