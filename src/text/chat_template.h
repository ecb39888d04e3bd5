// A model's chat template: conversation in, prompt text out, equal to Hugging Face's
// apply_chat_template(tokenize=False).
//
// Messages are ordered JSON as the OpenAI API has them (role, content as text or list of parts, tool_calls,
// reasoning_content, ...), so that tojson prints keys in the caller's order. Immutable after make(); apply() is const
// and thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/jinja/template.h"
#include <godwit/status.h>

namespace godwit {

struct ChatOptions {
  nlohmann::ordered_json tools;      // array of tool schemas, or null
  nlohmann::ordered_json documents;  // array of documents for retrieval templates, or null
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra =
      nlohmann::ordered_json::object();  // further variables, e.g. {"enable_thinking": false}
  jinja::RenderOptions render;           // without render.now, strftime_now() reads the local clock
};

class ChatTemplate {
 public:
  // `label` names the template in errors, e.g. the model file.
  static Result<ChatTemplate> make(std::string_view source, std::string bos_token, std::string eos_token,
                                   std::string label);

  // `chat_template` is the value of that key in tokenizer_config.json: a string, or a list of {"name", "template"} of
  // which "default" is used, and "tool_use" (where there is one) when tools are given. Null is an error that tells how
  // to name a template by hand.
  static Result<ChatTemplate> from_json(const nlohmann::ordered_json& chat_template, std::string bos_token,
                                        std::string eos_token, std::string label);

  // `messages` is a non-empty array of objects.
  Result<std::string> apply(const nlohmann::ordered_json& messages, const ChatOptions& options = {}) const;

 private:
  struct Named {
    std::string name;
    jinja::Template compiled;
  };

  ChatTemplate() = default;
  const jinja::Template* choose(bool with_tools) const;
  std::string names() const;

  std::vector<Named> templates_;
  std::string bos_token_;
  std::string eos_token_;
  std::string label_;
};

}  // namespace godwit
