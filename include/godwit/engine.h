// An Engine is a loaded model with its KV memory. Open one, start sessions.
//
//   auto engine = godwit::Engine::open({});                 // the built-in model
//   auto session = engine->start();
//   session.append_text("Once upon a time");
//   session.generate({.max_tokens = 32}, [](const godwit::Piece& p) { std::cout << p.text; return true; });
//
// All members may be called from any thread. The engine lives as long as the last copy of it or session of it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/options.h>
#include <godwit/session.h>
#include <godwit/status.h>

namespace godwit {

class Backend;

struct EngineInfo {
  std::string model;    // file or folder, or "built-in"
  std::string family;   // "llama"
  std::string backend;  // what computes, in words
  std::string kv_codec;
  std::string kv_policy;  // empty: none
  uint64_t weight_bytes = 0;
  int64_t context_tokens = 0;  // longest sequence
  int prefill_chunk = 0;       // tokens of a prompt that run at once
  uint64_t kv_budget_bytes = 0;
  uint64_t kv_bytes_in_use = 0;
  uint64_t kv_bytes_peak = 0;
  double kv_bytes_per_token = 0;
  int vocab_size = 0;
  // With EngineOptions::profile: time that all sessions have spent so far in matrix products, attention and the rest.
  double matmul_seconds = 0, attention_seconds = 0, other_seconds = 0;
};

struct ChatMessage {
  std::string role, content;
};

class Engine {
 public:
  // Checks sizes before it loads: a model that cannot fit is refused with the numbers.
  static Result<Engine> open(const EngineOptions& options);

  Session start() const;
  EngineInfo info() const;

  struct TokenizeOptions {
    bool add_bos = true;         // where the model wants it
    bool parse_special = false;  // "<|im_end|>" in the text is that token
  };
  // The text is taken as one to be continued: no EOS is put behind it, whatever the model's tokenizer would do.
  Result<std::vector<TokenId>> tokenize(std::string_view text) const { return tokenize(text, TokenizeOptions()); }
  Result<std::vector<TokenId>> tokenize(std::string_view text, TokenizeOptions options) const;
  std::string detokenize(std::span<const TokenId> tokens, bool keep_special = false) const;
  std::span<const TokenId> end_tokens() const;  // what ends an answer

  // The conversation in the model's own template, as tokens. Text inside messages never becomes a special token.
  Result<std::vector<TokenId>> chat_tokens(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt = true) const;

 private:
  friend class Session;
  friend class Service;
  friend Result<Engine> open_engine(const EngineOptions& options, std::unique_ptr<Backend> backend);
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace godwit
