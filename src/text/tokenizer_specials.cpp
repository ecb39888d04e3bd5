// BOS, EOS and what is put around a text, from the post-processor and tokenizer_config.json.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer_impl.h"

namespace godwit {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxAround = 64;

Result<TokenId> checked_id(const Json& value, const Tokenizer::Impl& impl) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id < impl.vocab.size() && impl.vocab.has(static_cast<TokenId>(id))) return static_cast<TokenId>(id);
  }
  return errorf(ErrorCode::kBadData, "{}: the post-processor names a token id that is not in the vocabulary",
                impl.vocab.label());
}

Status read_template(const Json& processor, Tokenizer::Impl& impl) {
  const std::string& label = impl.vocab.label();
  const auto bad = [&](std::string_view why) {
    return errorf(ErrorCode::kBadData, "{}: the TemplateProcessing post-processor {}", label, why);
  };
  const auto single = processor.find("single");
  const auto tokens = processor.find("special_tokens");
  if (single == processor.end() || !single->is_array()) return bad("has no list 'single'");
  std::vector<TokenId>* side = &impl.before;
  for (const Json& item : *single) {
    if (!item.is_object()) return bad("has an entry that is not an object");
    if (item.contains("Sequence")) {
      if (side == &impl.after) return bad("puts the text in twice");
      side = &impl.after;
      continue;
    }
    const auto special = item.find("SpecialToken");
    if (special == item.end() || !special->is_object() || !special->contains("id") || !(*special)["id"].is_string()) {
      return bad("has an entry that is neither a sequence nor a special token");
    }
    const auto& name = (*special)["id"].get_ref<const std::string&>();
    if (tokens == processor.end() || !tokens->is_object() || !tokens->contains(name)) {
      return bad(fmt::format("does not define its token '{:.80}'", name));
    }
    const Json& definition = (*tokens)[name];
    if (!definition.is_object() || !definition.contains("ids") || !definition["ids"].is_array()) {
      return bad(fmt::format("has no ids for its token '{:.80}'", name));
    }
    for (const Json& value : definition["ids"]) {
      GODWIT_ASSIGN(const TokenId id, checked_id(value, impl));
      if (side->size() >= kMaxAround) return bad("adds too many tokens");
      side->push_back(id);
    }
  }
  if (side == &impl.before) return bad("leaves the text out");
  return {};
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
Status read_pair(const Json& processor, Tokenizer::Impl& impl) {
  for (const char* key : {"cls", "sep"}) {
    const auto it = processor.find(key);
    if (it == processor.end() || !it->is_array() || it->size() != 2) {
      return errorf(ErrorCode::kBadData, "{}: the post-processor has no pair '{}'", impl.vocab.label(), key);
    }
    GODWIT_ASSIGN(const TokenId id, checked_id((*it)[1], impl));
    (std::string_view(key) == "cls" ? impl.before : impl.after).push_back(id);
  }
  return {};
}

Status read_processor(const Json& processor, Tokenizer::Impl& impl) {
  if (processor.is_null()) return {};
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(processor, impl.vocab.label()));
  GODWIT_ASSIGN(const std::string type, object.get<std::string>("type"));
  if (type == "ByteLevel") return {};  // concerns offsets only
  if (type == "TemplateProcessing" || type == "RobertaProcessing" || type == "BertProcessing") {
    if (!impl.before.empty() || !impl.after.empty()) {
      return errorf(ErrorCode::kUnsupported, "{}: more than one post-processor adds tokens", impl.vocab.label());
    }
    return type == "TemplateProcessing" ? read_template(processor, impl) : read_pair(processor, impl);
  }
  if (type == "Sequence") {
    const auto list = processor.find("processors");
    if (list == processor.end() || !list->is_array()) {
      return errorf(ErrorCode::kBadData, "{}: a Sequence post-processor has no list 'processors'", impl.vocab.label());
    }
    for (const Json& item : *list) GODWIT_TRY(read_processor(item, impl));
    return {};
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: the post-processor '{:.80}' is not supported (supported: TemplateProcessing, ByteLevel, "
                "RobertaProcessing, BertProcessing, Sequence)",
                impl.vocab.label(), type);
}

// A token in tokenizer_config.json: its text, or an object with its "content"; -1 when there is none.
TokenId config_token(const Json& config, const char* key, const Tokenizer::Impl& impl) {
  const auto it = config.find(key);
  if (it == config.end()) return -1;
  const Json* text = &*it;
  if (text->is_object() && text->contains("content")) text = &(*text)["content"];
  return text->is_string() ? impl.vocab.find_or(text->get_ref<const std::string&>(), -1) : -1;
}

// add_bos_token and add_eos_token win over the post-processor, as when the model's own tokenizer class is used.
void apply_flag(std::optional<bool> wanted, TokenId id, bool front, std::vector<TokenId>& tokens) {
  if (!wanted || id < 0) return;
  const auto it = std::find(tokens.begin(), tokens.end(), id);
  if (*wanted && it == tokens.end()) tokens.insert(front ? tokens.begin() : tokens.end(), id);
  if (!*wanted && it != tokens.end()) tokens.erase(it);
}

}  // namespace

Status read_specials(const Json& post_processor, const Json& config, std::string_view label, Tokenizer::Impl& impl) {
  GODWIT_TRY(read_processor(post_processor, impl));
  if (config.is_null()) {
    if (!impl.before.empty()) impl.bos = impl.before.front();
    if (!impl.after.empty()) impl.eos = impl.after.back();
    return {};
  }
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(config, std::string(label) + ": tokenizer_config.json"));
  impl.bos = config_token(config, "bos_token", impl);
  impl.eos = config_token(config, "eos_token", impl);
  impl.pad = config_token(config, "pad_token", impl);
  if (const TokenId unk = config_token(config, "unk_token", impl); unk >= 0 && impl.unk < 0) impl.unk = unk;
  GODWIT_ASSIGN(const auto add_bos, object.find<bool>("add_bos_token"));
  GODWIT_ASSIGN(const auto add_eos, object.find<bool>("add_eos_token"));
  apply_flag(add_bos, impl.bos, true, impl.before);
  apply_flag(add_eos, impl.eos, false, impl.after);
  return {};
}

}  // namespace godwit
