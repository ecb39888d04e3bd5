// The state of a Session and its steps. Tokens [0, computed) have their K and V in the cache; the rest waits.
#pragma once

#include "engine/engine_impl.h"

namespace godwit {

struct Session::Impl {
  std::shared_ptr<Engine::Impl> engine;
  // Touched only with engine->mutex held.
  std::unique_ptr<KvSequence> sequence;
  uint64_t team_sequence = 0;              // what the other ranks call it
  std::unique_ptr<KvRetention> retention;  // null: every entry stays, or the team holds it to the budget
  AttentionObserver* watcher = nullptr;    // see SessionProbe
  std::vector<TokenId> tokens;
  std::vector<Phase> phases;  // how each token is computed, now or again: appended ones prefill, sampled ones decode
  std::vector<float> logits;  // after the last computed token, or empty
  size_t unrepaired = 0;  // last computed tokens, all sampled ones, whose K and V a sparse decode planner had a part in

  explicit Impl(std::shared_ptr<Engine::Impl> e);
  ~Impl();

  size_t computed() const { return static_cast<size_t>(sequence->next_position()); }
  Status append(std::span<const TokenId> added);
  void append_sampled(TokenId token);
  void drop_tokens(size_t count);  // from token `count` on
  // Drops what was computed from token `count` on, and the logits with it; all of it where a KV policy has dropped
  // entries since.
  void forget_computed(size_t count);
  // Logits after a token, and that token's index.
  using OnLogits = std::function<void(size_t token, std::span<const float> logits)>;
  // Runs the next of the tokens that wait, all of one phase, as one step; `on_logits`, where given, gets all of its
  // rows.
  Status step(bool prompt_ends, const OnLogits& on_logits);
  // The others with engine->mutex held. forward() appends and runs the next `count` tokens, all of one phase.
  Status step_over_ranks(bool prompt_ends, const OnLogits& on_logits);
  Status forward(size_t count, AttentionPlanner& planner);
  Status repair();              // computes the unrepaired tokens again, densely
  size_t phase_tokens() const;  // that wait, of the first one's phase
  // How many of them make the next step; over ranks this follows their speeds, and changes with every step.
  size_t step_tokens() const;
  // Over ranks: as many take part as those that wait are best computed with.
  Status fit_prompt();
  Status compute_pending(const std::function<void(const Progress&)>& on_progress, std::stop_token stop,
                         const OnLogits& on_logits, bool prompt_ends);
};

}  // namespace godwit
