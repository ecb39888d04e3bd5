// Tokenizer::from_json: the tokenizer.json of Hugging Face's `tokenizers` library.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer_impl.h"

namespace godwit {
namespace {

using Json = nlohmann::json;

// A member, or null when it is absent.
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

Status read_added_tokens(const Json& list, Tokenizer::Impl& impl) {
  const std::string& label = impl.vocab.label();
  if (list.is_null()) return {};
  if (!list.is_array()) return errorf(ErrorCode::kBadData, "{}: 'added_tokens' is not a list", label);
  for (const Json& item : list) {
    GODWIT_ASSIGN(const JsonObject object, JsonObject::of(item, label));
    AddedToken token;
    GODWIT_ASSIGN(const int64_t id, object.get<int64_t>("id"));
    if (id < 0 || id > INT32_MAX) return errorf(ErrorCode::kBadData, "{}: an added token has the id {}", label, id);
    token.id = static_cast<TokenId>(id);
    GODWIT_ASSIGN(token.content, object.get<std::string>("content"));
    GODWIT_ASSIGN(token.special, object.get_or<bool>("special", false));
    GODWIT_ASSIGN(token.lstrip, object.get_or<bool>("lstrip", false));
    GODWIT_ASSIGN(token.rstrip, object.get_or<bool>("rstrip", false));
    GODWIT_ASSIGN(token.single_word, object.get_or<bool>("single_word", false));
    GODWIT_ASSIGN(token.normalized, object.get_or<bool>("normalized", !token.special));
    GODWIT_TRY(impl.add_token(std::move(token)));
  }
  return {};
}

Status read_bpe_vocab(const JsonObject& model, Vocab& vocab) {
  GODWIT_ASSIGN(const JsonObject list, model.object("vocab"));
  for (const auto& [text, id] : list.value().items()) {
    if (!id.is_number_integer()) {
      return errorf(ErrorCode::kBadData, "{}: the id of the token '{:.80}' is not a whole number", vocab.label(), text);
    }
    GODWIT_TRY(vocab.add(id.get<int64_t>(), text));
  }
  return {};
}

// A merge is "left right" or ["left", "right"].
Result<std::pair<std::string, std::string>> read_merge(const Json& item, std::string_view label) {
  if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
    return std::pair(item[0].get<std::string>(), item[1].get<std::string>());
  }
  if (item.is_string()) {
    const auto& text = item.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return errorf(ErrorCode::kBadData, "{}: the merge {:.80} is not a pair of tokens", label, item.dump(-1, ' ', true));
}

Result<std::vector<BpeMerge>> read_merges(const Json& list, const Vocab& vocab) {
  if (!list.is_array()) return errorf(ErrorCode::kBadData, "{}: 'model.merges' is not a list", vocab.label());
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (const Json& item : list) {
    GODWIT_ASSIGN(const auto pair, read_merge(item, vocab.label()));
    const auto rank = static_cast<uint32_t>(merges.size());
    merges.push_back({vocab.find_or(pair.first, -1), vocab.find_or(pair.second, -1),
                      vocab.find_or(pair.first + pair.second, -1), rank});
    if (merges.back().left < 0 || merges.back().right < 0 || merges.back().result < 0) {
      return errorf(ErrorCode::kBadData,
                    "{}: the merge of '{:.80}' and '{:.80}' uses or makes a token that is not in the vocabulary",
                    vocab.label(), pair.first, pair.second);
    }
  }
  return merges;
}

Status check_unused(const JsonObject& model, const char* key) {
  GODWIT_ASSIGN(const std::string value, model.get_or<std::string>(key, ""));
  if (value.empty()) return {};
  return errorf(ErrorCode::kUnsupported, "{}: a BPE model with '{}' is not supported", model.label(), key);
}

Status read_bpe(const JsonObject& model, Tokenizer::Impl& impl) {
  BpeOptions options;
  options.byte_level = impl.pre_tokenizer.byte_level();
  GODWIT_ASSIGN(options.byte_fallback, model.get_or<bool>("byte_fallback", false));
  GODWIT_ASSIGN(options.fuse_unk, model.get_or<bool>("fuse_unk", false));
  GODWIT_ASSIGN(options.ignore_merges, model.get_or<bool>("ignore_merges", false));
  GODWIT_TRY(check_unused(model, "continuing_subword_prefix"));
  GODWIT_TRY(check_unused(model, "end_of_word_suffix"));
  GODWIT_ASSIGN(const std::string unk, model.get_or<std::string>("unk_token", ""));
  if (!unk.empty()) {
    const auto id = impl.vocab.find(unk);
    if (!id) {
      return errorf(ErrorCode::kBadData, "{}: the unknown token '{:.80}' is not in the vocabulary", model.label(), unk);
    }
    impl.unk = options.unk = *id;
  }
  GODWIT_ASSIGN(const auto merges, read_merges(member(model.value(), "merges"), impl.vocab));
  impl.model.emplace<BpeModel>(impl.vocab, options, merges, impl.special);
  return {};
}

Status read_unigram_vocab(const JsonObject& model, Vocab& vocab, std::vector<double>& scores) {
  const Json& list = member(model.value(), "vocab");
  if (!list.is_array()) return errorf(ErrorCode::kBadData, "{}: 'model.vocab' is not a list", vocab.label());
  for (const Json& item : list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return errorf(ErrorCode::kBadData, "{}: the entry {} of 'model.vocab' is not a token and its score",
                    vocab.label(), scores.size());
    }
    GODWIT_TRY(vocab.add(static_cast<int64_t>(scores.size()), item[0].get_ref<const std::string&>()));
    scores.push_back(item[1].get<double>());
  }
  return {};
}

Status read_unigram(const JsonObject& model, std::vector<double> scores, Tokenizer::Impl& impl) {
  GODWIT_ASSIGN(const int64_t unk, model.get_or<int64_t>("unk_id", -1));
  GODWIT_ASSIGN(const bool byte_fallback, model.get_or<bool>("byte_fallback", false));
  if (unk >= static_cast<int64_t>(scores.size()) || unk < -1) {
    return errorf(ErrorCode::kBadData, "{}: the unknown token's id {} is not in the vocabulary", model.label(), unk);
  }
  if (impl.pre_tokenizer.byte_level()) {
    return errorf(ErrorCode::kUnsupported, "{}: a byte-level Unigram model is not supported", model.label());
  }
  impl.unk = static_cast<TokenId>(unk);
  std::vector<bool> unreachable = impl.special;
  if (unk >= 0) unreachable[static_cast<size_t>(unk)] = true;
  // Added tokens that the model itself does not have.
  for (size_t id = scores.size(); id < unreachable.size(); ++id) unreachable[id] = true;
  scores.resize(unreachable.size(), 0.0);
  impl.model.emplace<UnigramModel>(impl.vocab, std::move(scores), impl.unk, byte_fallback, unreachable);
  if (impl.unk < 0 && !impl.covers_bytes()) {
    return errorf(ErrorCode::kBadData, "{}: the Unigram model has neither an unknown token nor a token for every byte",
                  model.label());
  }
  return {};
}

Result<std::string> model_type(const JsonObject& model) {
  GODWIT_ASSIGN(std::string type, model.get_or<std::string>("type", model.has("merges") ? "BPE" : ""));
  if (type == "BPE" || type == "Unigram") return type;
  return errorf(ErrorCode::kUnsupported, "{}: the tokenizer model '{:.80}' is not supported (supported: BPE, Unigram)",
                model.label(), type);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                       std::string_view label_view) {
  const std::string label(label_view);
  GODWIT_ASSIGN(const Json root, parse_json(tokenizer_json, label + ": tokenizer.json"));
  Json config;
  if (!tokenizer_config_json.empty()) {
    GODWIT_ASSIGN(config, parse_json(tokenizer_config_json, label + ": tokenizer_config.json"));
  }
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(root, label + ": tokenizer.json"));
  GODWIT_ASSIGN(const JsonObject model, object.object("model"));
  GODWIT_ASSIGN(const std::string type, model_type(model));

  auto impl = std::make_shared<Impl>();
  impl->vocab = Vocab(label, member(model.value(), "vocab").size() + member(root, "added_tokens").size());
  std::vector<double> scores;
  if (type == "BPE") {
    GODWIT_TRY(read_bpe_vocab(model, impl->vocab));
  } else {
    GODWIT_TRY(read_unigram_vocab(model, impl->vocab, scores));
  }
  GODWIT_TRY(read_added_tokens(member(root, "added_tokens"), *impl));
  impl->mark_specials();

  GODWIT_ASSIGN(impl->normalizer, Normalizer::from_json(member(root, "normalizer"), label));
  GODWIT_ASSIGN(impl->pre_tokenizer, PreTokenizer::from_json(member(root, "pre_tokenizer"), label));
  GODWIT_ASSIGN(impl->decoder, TokenDecoder::from_json(member(root, "decoder"), label));
  if (type == "BPE") {
    GODWIT_TRY(read_bpe(model, *impl));
  } else {
    GODWIT_TRY(read_unigram(model, std::move(scores), *impl));
  }
  GODWIT_TRY(read_specials(member(root, "post_processor"), config, label, *impl));
  GODWIT_TRY(impl->finish());
  return Tokenizer(std::move(impl));
}

}  // namespace godwit
