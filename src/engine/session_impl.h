// The state of a Session and its steps. Tokens [0, computed) have their K and V in the cache; the rest waits.
#pragma once

#include "engine/engine_impl.h"

namespace godwit {

struct Session::Impl {
  std::shared_ptr<Engine::Impl> engine;
  std::unique_ptr<KvSequence> sequence;  // touched only with engine->mutex held
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // after the last computed token, or empty

  explicit Impl(std::shared_ptr<Engine::Impl> e);
  ~Impl();

  size_t computed() const { return static_cast<size_t>(sequence->next_position()); }
  Status append(std::span<const TokenId> added);
  // Drops what was computed from token `count` on, and the logits with it.
  void forget_computed(size_t count);
  // Runs tokens [computed, computed + count) as one step; `scores`, where given, gets one entry per row that a token
  // follows: how likely that token was.
  Status step(size_t count, AttentionPlanner& planner, std::vector<TokenScore>* scores);
  Status compute_pending(const std::function<void(const Progress&)>& on_progress, std::stop_token stop,
                         std::vector<TokenScore>* scores);
};

}  // namespace godwit
