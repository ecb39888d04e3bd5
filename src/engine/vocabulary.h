// What turns text into a model's tokens and back: its tokenizer, its chat template and the tokens that end an answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace godwit {

struct Vocabulary {
  Tokenizer tokenizer;
  std::vector<TokenId> end_tokens;
  std::vector<std::string> specials;  // texts of the special tokens, longest first
  std::optional<ChatTemplate> chat;
  std::string chat_source;  // what `chat` was made from
  std::string chat_error;   // why there is no `chat`
};

// `chat_template` (Jinja source) replaces the model's own when it is not empty; errors in it call it by its name. A
// template that cannot be read is no error here: a model can be used without one.
Result<Vocabulary> load_vocabulary(const ModelSource& source, const std::string& chat_template,
                                   const std::string& chat_template_name = {});

// The keys that GgufVocab's comments name.
Status write_vocab(const GgufVocab& vocab, GgufMetadata& metadata);

// Tokens of a rendered conversation. Special tokens that the template writes count; those inside messages, tools and
// documents are mere text, as long as they have at least two characters.
Result<std::vector<TokenId>> encode_chat(const Vocabulary& vocabulary, nlohmann::ordered_json messages,
                                         const ChatOptions& options);

}  // namespace godwit
