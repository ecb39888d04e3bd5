// A rendered conversation as tokens. The template works on text, so what must not become a special token is marked in
// the text: a character that occurs nowhere in the conversation breaks it apart, and the text is encoded piece by piece
// between those marks, each going on where the one before it ends.
#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "engine/vocabulary.h"

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;

bool occurs(const Json& value, std::string_view text) {
  if (value.is_string()) return value.get_ref<const std::string&>().find(text) != std::string::npos;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      if (key.find(text) != std::string::npos || occurs(item, text)) return true;
  } else if (value.is_array()) {
    for (const Json& item : value)
      if (occurs(item, text)) return true;
  }
  return false;
}

// A private-use character (U+E000 to U+F8FF) that neither the conversation nor the template contains.
Result<std::string> unused_character(const Json& conversation, const std::string& chat_source) {
  for (unsigned code = 0xE000; code <= 0xF8FF; ++code) {
    const std::string text = {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                              static_cast<char>(0x80 | (code & 0x3F))};
    if (chat_source.find(text) == std::string::npos && !occurs(conversation, text)) return text;
  }
  return errorf(ErrorCode::kInvalidArgument, "the conversation contains every private-use character of Unicode");
}

// Breaks every special token apart that a text spells out, or that its end begins and a text after it could complete.
class Breaker {
 public:
  Breaker(const std::vector<std::string>& specials, std::string mark) : specials_(specials), mark_(std::move(mark)) {}

  bool found() const { return found_; }

  void apply(Json& value) {
    if (value.is_string()) {
      value = broken(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      for (Json& item : value) apply(item);
    } else if (value.is_object()) {
      Json result = Json::object();
      for (auto& [key, item] : value.items()) {
        apply(item);
        result[broken(key)] = std::move(item);
      }
      value = std::move(result);
    }
  }

 private:
  static size_t character_bytes(std::string_view text) {
    size_t bytes = 1;
    while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) ++bytes;
    return bytes;
  }

  std::string broken(const std::string& text) {
    std::vector<size_t> places;  // where a mark goes
    for (const std::string& special : specials_)
      for (size_t at = text.find(special); at != std::string::npos; at = text.find(special, at + 1))
        places.push_back(at + character_bytes(special));
    if (size_t end = open_end(text); end > 0) places.push_back(end);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    found_ |= !places.empty();
    std::string result;
    result.reserve(text.size() + places.size() * mark_.size());
    size_t begin = 0;
    for (size_t place : places) {
      result.append(text, begin, place - begin).append(mark_);
      begin = place;
    }
    return result.append(text, begin);
  }

  // The end of the text (white space aside, which templates trim) where it is the beginning of a special token; or 0.
  size_t open_end(std::string_view text) const {
    const size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) return 0;
    const std::string_view trimmed = text.substr(0, last + 1);
    for (const std::string& special : specials_) {
      if (std::isalnum(static_cast<unsigned char>(special[0])) != 0) continue;  // or else plain words would be cut off
      for (size_t n = std::min(special.size() - 1, trimmed.size()); n > 0; --n)
        if (trimmed.substr(trimmed.size() - n) == std::string_view(special).substr(0, n)) return trimmed.size();
    }
    return 0;
  }

  const std::vector<std::string>& specials_;
  std::string mark_;
  bool found_ = false;
};

}  // namespace

Result<std::vector<TokenId>> encode_chat(const Vocabulary& vocabulary, Json messages, const ChatOptions& options) {
  if (!vocabulary.chat) return errorf(ErrorCode::kUnsupported, "{}", vocabulary.chat_error);
  ChatOptions marked = options;
  Json conversation = Json::array({std::move(messages), options.tools, options.documents, options.extra});
  GODWIT_ASSIGN(const std::string mark, unused_character(conversation, vocabulary.chat_source));
  Breaker breaker(vocabulary.specials, mark);
  breaker.apply(conversation);
  marked.tools = std::move(conversation[1]);
  marked.documents = std::move(conversation[2]);
  marked.extra = std::move(conversation[3]);
  GODWIT_ASSIGN(const std::string text, vocabulary.chat->apply(conversation[0], marked));
  EncodeOptions encode{.add_bos = false, .add_eos = false, .parse_special = true};
  if (!breaker.found()) return vocabulary.tokenizer.encode(text, encode);
  std::vector<TokenId> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    GODWIT_ASSIGN(auto part, vocabulary.tokenizer.encode(std::string_view(text).substr(begin, end - begin), encode));
    tokens.insert(tokens.end(), part.begin(), part.end());
    begin = end + mark.size();
    encode.continues = true;
  }
  return tokens;
}

}  // namespace godwit
