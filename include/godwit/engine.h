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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/options.h>
#include <godwit/session.h>
#include <godwit/status.h>
#include <godwit/tools.h>

namespace godwit {

struct EngineInfo {
  std::string model;    // file or folder, or "built-in"
  std::string family;   // "llama"
  std::string backend;  // what computes, in words
  int threads = 0;      // that compute
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
  int ranks = 1;  // KV bytes above are rank 0's
  int prefill_ranks = 0,
      decode_ranks = 0;     // that took part in the last step of a prompt, and of an answer; 0: none yet
  std::string ring;         // with more than one: what travelled in the last step, and over which link
  std::string tool_format;  // how the chat template wants calls of tools written; empty: it takes no tools
  // With EngineOptions::profile: time that all sessions have spent so far in matrix products, attention and the rest.
  double matmul_seconds = 0, attention_seconds = 0, other_seconds = 0;
};

struct ChatMessage {
  std::string role, content;
  std::vector<ToolCall> tool_calls{};  // of an assistant
  std::string tool_call_id{}, name{};  // of a tool's answer, whose role is "tool"
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools{};
  // For a template that takes no tools: false is an error, true describes them in the system message (and writes calls
  // and their answers as text).
  bool tools_in_prompt = false;
  bool add_generation_prompt = true;
  std::string variables{};  // a JSON object: further variables of the template, like {"enable_thinking": false}
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
  std::string_view token_bytes(TokenId token) const;  // inside a text; they need not be UTF-8
  std::span<const TokenId> end_tokens() const;        // what ends an answer
  // How the model's file wants tokens to be chosen (generation_config.json, or general.sampling of a GGUF file), and
  // `otherwise` where it says nothing. Nothing applies it unasked: GenerateOptions has its own defaults.
  SamplingOptions recommended_sampling(const SamplingOptions& otherwise = {}) const;

  // The conversation in the model's own template, as tokens. Text inside messages never becomes a special token.
  Result<std::vector<TokenId>> chat_tokens(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt = true) const;
  Result<std::vector<TokenId>> chat_prompt(const ChatRequest& request) const;  // likewise, with tools

  // How the model's template wants calls written; nothing where it takes no tools.
  std::optional<ToolFormat> tool_format() const;
  // For the text of an answer that may call these tools; generate with GenerateOptions::keep_special.
  ToolCallParser tool_parser(std::span<const Tool> tools) const;

  // What an answer can be held to (GenerateOptions::constraint). The engine keeps the last ones, so that to ask again
  // with the same text is cheap.
  //
  // JSON that this schema accepts; docs/grammar.md says what of JSON Schema is supported. The error names a keyword
  // that is not, and its place.
  Result<std::shared_ptr<const Constraint>> json_schema(std::string_view schema) const;
  Result<std::shared_ptr<const Constraint>> json_object() const;  // any JSON object
  // One to `most_calls` calls of these tools and nothing else, written as tool_parser() reads them, with arguments that
  // the tools' schemas accept; formats without marks have one call. Generate with GenerateOptions::keep_special.
  Result<std::shared_ptr<const Constraint>> tool_calls(std::span<const Tool> tools, int most_calls = 1) const;

  struct Impl;  // the library's own
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace godwit
