// A Session is one sequence of tokens and its KV cache: feed it text, let it generate, go on.
//
// Sessions of one engine share its model and its KV budget. A session may be used by one thread at a time; different
// sessions may be used by different threads at once, their steps then take turns. Destroying a session frees its KV
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/options.h>
#include <godwit/status.h>

namespace godwit {

// What a generation hands out as it goes: whole characters only.
struct Piece {
  TokenId id = 0;    // the newest token
  std::string text;  // text that became certain with it; may be empty
  float logprob = 0;
  std::vector<TokenLogprob> top;  // as many as SamplingOptions::logprobs
};

enum class FinishReason {
  kStop,         // an end token, a stop token or a stop string
  kLength,       // max_tokens
  kCancelled,    // a stop request, or on_piece returned false
  kKvExhausted,  // the KV budget is used up; the session can go on once memory is free
  kContextFull,  // no token fits into the context any more; truncate() makes room
};

struct Generation {
  std::string text;
  std::vector<TokenId> tokens;  // all that were sampled, an end token included
  FinishReason finish = FinishReason::kStop;
  int prompt_tokens = 0;  // tokens of the prompt that this call had to compute
  double prefill_seconds = 0;
  double decode_seconds = 0;  // all tokens after the first
};

struct TokenScore {
  float logprob = 0;    // natural
  bool is_top = false;  // no other token was more likely
};

struct Progress {
  int64_t done = 0, total = 0;  // prompt tokens
};

class Session {
 public:
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Adds tokens to the end of the context. They are computed by the next prefill() or generate(). kExhausted when the
  // context cannot hold them: nothing is cut, nothing is added.
  Status append(std::span<const TokenId> tokens);
  // Plain text. In an empty session it begins as the model wants it (BOS, SentencePiece's space); else it goes on where
  // the session ends. No EOS is put behind it.
  Status append_text(std::string_view text);

  // Computes what was appended, in chunks. kCancelled when `stop` was requested between two chunks: the session is then
  // intact and goes on where it stopped. kExhausted when the KV budget is used up, likewise. With a KV policy that acts
  // at the end of a prompt, `prompt_ends` says whether that is here or more of it follows.
  Status prefill(const std::function<void(const Progress&)>& on_progress = {}, std::stop_token stop = {},
                 bool prompt_ends = true);

  // Computes what was appended, then samples until an end. `on_piece` may be empty; returning false ends the
  // generation. A stop request or a used-up KV budget is prefill()'s error while the prompt is computed; after that,
  // what was generated so far is returned and `finish` says why it ends there. REQUIRES: the session is not empty.
  Result<Generation> generate(const GenerateOptions& options, const std::function<bool(const Piece&)>& on_piece = {},
                              const std::function<void(const Progress&)>& on_progress = {}, std::stop_token stop = {});

  // Appends `tokens` and hands out the next-token logits after each, in order; a span lives as long as the call.
  Status read(std::span<const TokenId> tokens, const std::function<void(std::span<const float> logits)>& on_logits,
              std::stop_token stop = {});

  // Appends `tokens` and says of each how likely it was given all before it (a default for the first of an empty
  // session).
  Result<std::vector<TokenScore>> score(std::span<const TokenId> tokens,
                                        const std::function<void(const Progress&)>& on_progress = {},
                                        std::stop_token stop = {});

  std::span<const TokenId> tokens() const;  // the whole context
  uint64_t kv_bytes() const;                // KV memory that this session holds
  // Forgets all but the first `count` tokens. Entries that a KV policy dropped with later tokens in mind do not come
  // back by that: where some were, the rest is computed anew by the next prefill() or generate().
  void truncate(size_t count);
  // A session with the same context that shares its KV memory until one of them changes.
  Session fork() const;

 private:
  friend class Engine;
  friend struct SessionProbe;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit
