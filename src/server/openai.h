// What OpenAI's protocols share.
#pragma once

#include "server/generation.h"
#include "server/json_text.h"

namespace godwit::server {

Json usage_json(const Usage& usage);
std::string_view openai_finish(FinishReason reason);

// Log-probabilities of one token, and whether the token counts (the one that ends an answer does not).
struct LogprobFormat {
  const Engine* engine;
  bool ignore_eos = false;

  bool counts(const Piece& piece) const;
  Json chat(const Piece& piece) const;  // an element of logprobs.content
  std::string token(TokenId id) const { return std::string(engine->token_bytes(id)); }
  static double number(float logprob);  // JSON has no infinity
};

// What the answer must look like: outer[key] is {"type": "text"}, {"type": "json_object"} or one with a JSON schema.
ApiResult<void> read_format(const App& app, const Request& request, const Fields& outer, std::string_view key,
                            GenerateOptions& options);
// A member of the body with its keys in the client's order. REQUIRES: it is there.
ApiResult<Json> ordered_member(const Request& request, std::string_view pointer);

// stream_options: whether a stream ends with usage, and, in the plan, whether it tells of progress.
ApiResult<bool> read_stream_options(const Fields& fields, Plan& plan);

// Messages of a conversation as the engine takes them.
ApiResult<ChatMessage> read_message(const Fields& message);
ApiResult<std::vector<ChatMessage>> read_messages(const Fields& fields, std::string_view key);
// A call's arguments: a JSON object as text.
ApiResult<std::string> read_arguments(const Fields& call);
// A message's content: a string, or an array of parts that are all text.
ApiResult<std::string> read_content(const nlohmann::json& content, const std::string& name);
// A text, texts, token ids, or lists of token ids; as many as the limit of answers allows.
ApiResult<void> read_prompts(const App& app, const Fields& fields, std::string_view key, Plan& plan);
ApiResult<std::vector<TokenId>> chat_prompt(const App& app, std::vector<ChatMessage> messages,
                                            std::vector<Tool> tools = {}, bool tools_in_prompt = false);

}  // namespace godwit::server
