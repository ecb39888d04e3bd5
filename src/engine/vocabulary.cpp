#include "engine/vocabulary.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "io/mapped_file.h"

namespace godwit {
namespace {

Result<GgufVocab> read_vocab(const GgufMetadata& meta) {
  GgufVocab vocab;
  auto ids = [&](const char* key, TokenId& id) -> Status {
    GODWIT_ASSIGN(auto value, meta.find<int64_t>(key));
    if (value) id = static_cast<TokenId>(std::clamp<int64_t>(*value, -1, INT32_MAX));
    return {};
  };
  auto strings = [&](const char* key, std::vector<std::string>& out) -> Status {
    GODWIT_ASSIGN(auto values, meta.find<std::span<const std::string>>(key));
    if (values) out.assign(values->begin(), values->end());
    return {};
  };
  GODWIT_ASSIGN(vocab.model, meta.get<std::string>("tokenizer.ggml.model"));
  GODWIT_ASSIGN(vocab.pre, meta.get_or<std::string>("tokenizer.ggml.pre", ""));
  GODWIT_TRY(strings("tokenizer.ggml.tokens", vocab.tokens));
  GODWIT_TRY(strings("tokenizer.ggml.merges", vocab.merges));
  GODWIT_ASSIGN(vocab.scores, meta.get_or<std::vector<float>>("tokenizer.ggml.scores", {}));
  GODWIT_ASSIGN(auto types, meta.get_or<std::vector<int64_t>>("tokenizer.ggml.token_type", {}));
  vocab.types.assign(types.begin(), types.end());
  GODWIT_TRY(ids("tokenizer.ggml.bos_token_id", vocab.bos));
  GODWIT_TRY(ids("tokenizer.ggml.eos_token_id", vocab.eos));
  GODWIT_TRY(ids("tokenizer.ggml.eot_token_id", vocab.eot));
  GODWIT_TRY(ids("tokenizer.ggml.unknown_token_id", vocab.unk));
  GODWIT_TRY(ids("tokenizer.ggml.padding_token_id", vocab.pad));
  GODWIT_ASSIGN(vocab.add_bos, meta.find<bool>("tokenizer.ggml.add_bos_token"));
  GODWIT_ASSIGN(vocab.add_eos, meta.find<bool>("tokenizer.ggml.add_eos_token"));
  GODWIT_ASSIGN(vocab.add_space_prefix, meta.find<bool>("tokenizer.ggml.add_space_prefix"));
  GODWIT_ASSIGN(vocab.remove_extra_whitespaces, meta.find<bool>("tokenizer.ggml.remove_extra_whitespaces"));
  GODWIT_ASSIGN(auto charsmap, meta.get_or<std::vector<int64_t>>("tokenizer.ggml.precompiled_charsmap", {}));
  vocab.precompiled_charsmap.assign(charsmap.begin(), charsmap.end());
  GODWIT_ASSIGN(vocab.space_prefix, meta.get_or<std::string>("godwit.tokenizer.space_prefix", ""));
  GODWIT_ASSIGN(auto flags, meta.get_or<std::vector<int64_t>>("godwit.tokenizer.token_flags", {}));
  vocab.token_flags.assign(flags.begin(), flags.end());
  return vocab;
}

void add_end(std::vector<TokenId>& ends, std::optional<TokenId> id) {
  if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
}

// End tokens that a file lists by number.
Status add_listed_ends(const ModelSource& source, std::span<const int64_t> ids, std::vector<TokenId>& ends) {
  for (int64_t id : ids) {
    if (id < 0 || id >= source.config().vocab_size)
      return errorf(ErrorCode::kBadData, "{}: the end token {} is not in the vocabulary of {} tokens", source.label(),
                    id, source.config().vocab_size);
    add_end(ends, static_cast<TokenId>(id));
  }
  return {};
}

// Turn-ending tokens by the names that models give them: many files list one end, and their template writes another.
void add_known_ends(const Tokenizer& tokenizer, std::vector<TokenId>& ends) {
  for (const char* name : {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"})
    if (auto id = tokenizer.find(name); id && tokenizer.is_special(*id)) add_end(ends, id);
}

Result<std::string> file_text(const std::filesystem::path& path) {
  GODWIT_ASSIGN(auto file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

// "eos_token_id" of generation_config.json or config.json: a number or a list of them.
Status read_end_tokens(const ModelSource& source, std::vector<TokenId>& ends) {
  const HfFolder& folder = *source.folder();
  for (const auto& object : {folder.generation_config(), std::optional(folder.config())}) {
    if (!object || !object->has("eos_token_id")) continue;
    if (object->value()["eos_token_id"].is_array()) {
      GODWIT_ASSIGN(auto ids, object->get<std::vector<int64_t>>("eos_token_id"));
      return add_listed_ends(source, ids, ends);
    }
    GODWIT_ASSIGN(int64_t id, object->get<int64_t>("eos_token_id"));
    return add_listed_ends(source, {&id, 1}, ends);
  }
  return {};
}

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id) && tokenizer.token_text(id).size() > 1) texts.emplace_back(tokenizer.token_text(id));
  std::sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return texts;
}

std::string token_or_empty(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

}  // namespace

Result<Vocabulary> load_vocabulary(const ModelSource& source, const std::string& chat_template,
                                   const std::string& chat_template_name) {
  std::optional<Tokenizer> tokenizer;
  std::vector<TokenId> ends;
  nlohmann::ordered_json template_json;
  std::string template_error;
  if (const Gguf* gguf = source.gguf()) {
    const GgufMetadata& meta = gguf->metadata();
    GODWIT_ASSIGN(GgufVocab vocab, read_vocab(meta));
    GODWIT_ASSIGN(tokenizer, Tokenizer::from_gguf(std::move(vocab), source.label()));
    GODWIT_ASSIGN(auto listed, meta.get_or<std::vector<int64_t>>("godwit.end_token_ids", {}));
    GODWIT_TRY(add_listed_ends(source, listed, ends));
    GODWIT_ASSIGN(auto text, meta.find<std::string>("tokenizer.chat_template"));
    if (text) template_json = *text;
  } else {
    const HfFolder& folder = *source.folder();
    GODWIT_ASSIGN(std::string json, folder.tokenizer());
    std::string config;
    if (folder.tokenizer_config()) {
      GODWIT_ASSIGN(config, file_text(folder.path() / "tokenizer_config.json"));
    }
    GODWIT_ASSIGN(tokenizer, Tokenizer::from_json(json, config, source.label()));
    GODWIT_TRY(read_end_tokens(source, ends));
    if (auto text = folder.chat_template(); !text)
      template_error = text.error().message;
    else if (*text)
      template_json = **text;
  }
  add_end(ends, tokenizer->eos());
  add_end(ends, tokenizer->eot());
  add_known_ends(*tokenizer, ends);
  Vocabulary vocabulary{*tokenizer, std::move(ends), special_texts(*tokenizer), std::nullopt, {}, {}};
  if (!chat_template.empty()) {
    template_json = chat_template;
  } else if (!template_error.empty()) {
    vocabulary.chat_error = std::move(template_error);
    return vocabulary;
  }
  if (template_json.is_string()) vocabulary.chat_source = template_json.get<std::string>();
  if (template_json.is_array())
    for (const auto& entry : template_json)
      if (entry.is_object() && entry.contains("template") && entry["template"].is_string())
        vocabulary.chat_source += entry["template"].get<std::string>() + "\n";
  auto chat = ChatTemplate::from_json(template_json, token_or_empty(*tokenizer, tokenizer->bos()),
                                      token_or_empty(*tokenizer, tokenizer->eos()),
                                      chat_template.empty() ? source.label() : chat_template_name);
  if (chat)
    vocabulary.chat = std::move(*chat);
  else
    vocabulary.chat_error = chat.error().message;
  return vocabulary;
}

Status write_vocab(const GgufVocab& v, GgufMetadata& meta) {
  auto set = [&](const char* key, bool given, GgufValue value) {
    return given ? meta.set(key, std::move(value)) : Status{};
  };
  auto id = [&](const char* key, TokenId value) { return set(key, value >= 0, static_cast<uint32_t>(value)); };
  auto flag = [&](const char* key, std::optional<bool> value) {
    return set(key, value.has_value(), value.value_or(false));
  };
  GODWIT_TRY(set("tokenizer.ggml.model", true, v.model));
  GODWIT_TRY(set("tokenizer.ggml.pre", !v.pre.empty(), v.pre));
  GODWIT_TRY(set("tokenizer.ggml.tokens", true, GgufArray(v.tokens)));
  GODWIT_TRY(set("tokenizer.ggml.scores", !v.scores.empty(), GgufArray(v.scores)));
  GODWIT_TRY(set("tokenizer.ggml.token_type", !v.types.empty(), GgufArray(v.types)));
  GODWIT_TRY(set("tokenizer.ggml.merges", !v.merges.empty(), GgufArray(v.merges)));
  GODWIT_TRY(id("tokenizer.ggml.bos_token_id", v.bos));
  GODWIT_TRY(id("tokenizer.ggml.eos_token_id", v.eos));
  GODWIT_TRY(id("tokenizer.ggml.eot_token_id", v.eot));
  GODWIT_TRY(id("tokenizer.ggml.unknown_token_id", v.unk));
  GODWIT_TRY(id("tokenizer.ggml.padding_token_id", v.pad));
  GODWIT_TRY(flag("tokenizer.ggml.add_bos_token", v.add_bos));
  GODWIT_TRY(flag("tokenizer.ggml.add_eos_token", v.add_eos));
  GODWIT_TRY(flag("tokenizer.ggml.add_space_prefix", v.add_space_prefix));
  GODWIT_TRY(flag("tokenizer.ggml.remove_extra_whitespaces", v.remove_extra_whitespaces));
  GODWIT_TRY(
      set("tokenizer.ggml.precompiled_charsmap", !v.precompiled_charsmap.empty(), GgufArray(v.precompiled_charsmap)));
  GODWIT_TRY(set("godwit.tokenizer.space_prefix", !v.space_prefix.empty(), v.space_prefix));
  return set("godwit.tokenizer.token_flags", !v.token_flags.empty(), GgufArray(v.token_flags));
}

}  // namespace godwit
