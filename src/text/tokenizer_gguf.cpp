// Tokenizer::from_gguf: the metadata tokenizer.ggml.* of a GGUF file.
#include "text/tokenizer_gguf.h"

#include <cmath>

#include "base/result.h"
#include "text/pre_names.h"
#include "text/spm_merges.h"
#include "text/tokenizer_impl.h"

namespace godwit {
namespace {

using Kind = PreTokenizerStep::Kind;
using Prefix = PreTokenizerStep::Prefix;
using NormalKind = NormalizerStep::Kind;

GgufTokenType type_of(const GgufVocab& vocab, size_t id) {
  return vocab.types.empty() ? GgufTokenType::kNormal : static_cast<GgufTokenType>(vocab.types[id]);
}

template <class T>
Status check_length(const std::vector<T>& list, size_t tokens, const char* name, std::string_view label) {
  if (list.empty() || list.size() == tokens) return {};
  return errorf(ErrorCode::kBadData, "{}: {} has {} entries for {} tokens", label, name, list.size(), tokens);
}

Status check_vocab(const GgufVocab& vocab, std::string_view label) {
  const size_t count = vocab.tokens.size();
  if (count == 0) return errorf(ErrorCode::kBadData, "{}: tokenizer.ggml.tokens is missing or empty", label);
  GODWIT_TRY(check_length(vocab.scores, count, "tokenizer.ggml.scores", label));
  GODWIT_TRY(check_length(vocab.types, count, "tokenizer.ggml.token_type", label));
  GODWIT_TRY(check_length(vocab.token_flags, count, "godwit.tokenizer.token_flags", label));
  for (const float score : vocab.scores) {
    if (!std::isfinite(score)) {
      return errorf(ErrorCode::kBadData, "{}: tokenizer.ggml.scores holds a value that is not a number", label);
    }
  }
  for (const TokenId id : {vocab.bos, vocab.eos, vocab.eot, vocab.unk, vocab.pad}) {
    if (id < -1 || id >= static_cast<int64_t>(count)) {
      return errorf(ErrorCode::kBadData, "{}: a special token has the id {}, but there are {} tokens", label, id,
                    count);
    }
  }
  return {};
}

Status read_tokens(const GgufVocab& source, Tokenizer::Impl& impl) {
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const GgufTokenType type = type_of(source, i);
    const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
    if (source.tokens[i].empty() || (!special && type != GgufTokenType::kUserDefined)) {
      GODWIT_TRY(impl.vocab.add(id, source.tokens[i]));
      continue;
    }
    AddedToken token{id, source.tokens[i], special};
    const uint8_t flags = source.token_flags.empty() ? 0 : source.token_flags[i];
    token.lstrip = flags & kTokenLstrip;
    token.rstrip = flags & kTokenRstrip;
    token.single_word = flags & kTokenSingleWord;
    token.normalized = flags & kTokenNormalized;
    GODWIT_TRY(impl.add_token(std::move(token)));
    if (type == GgufTokenType::kUnknown && impl.unk < 0) impl.unk = id;
  }
  impl.mark_specials();
  return {};
}

Result<std::vector<BpeMerge>> read_merges(const std::vector<std::string>& list, const Vocab& vocab) {
  std::vector<BpeMerge> merges;
  merges.reserve(list.size());
  for (const std::string& text : list) {
    // A token may begin with a space, so the separator is not in the first place.
    const size_t space = text.empty() ? text.npos : text.find(' ', 1);
    if (space == text.npos) {
      return errorf(ErrorCode::kBadData, "{}: the merge '{:.80}' is not a pair of tokens", vocab.label(), text);
    }
    const std::string left = text.substr(0, space), right = text.substr(space + 1);
    const auto rank = static_cast<uint32_t>(merges.size());
    merges.push_back({vocab.find_or(left, -1), vocab.find_or(right, -1), vocab.find_or(left + right, -1), rank});
    if (merges.back().left < 0 || merges.back().right < 0 || merges.back().result < 0) {
      return errorf(ErrorCode::kBadData, "{}: the merge '{:.80}' uses or makes a token that is not in the vocabulary",
                    vocab.label(), text);
    }
  }
  return merges;
}

Result<bool> build_byte_level(const GgufVocab& source, Tokenizer::Impl& impl) {
  const std::string& label = impl.vocab.label();
  GODWIT_ASSIGN(PreTraits traits, find_pre(source.pre.empty() ? "default" : source.pre, label));
  if (source.merges.empty()) return errorf(ErrorCode::kBadData, "{}: tokenizer.ggml.merges is missing or empty", label);
  if (source.add_space_prefix.value_or(false)) {
    // The space comes before the text is cut.
    PreTokenizerStep bytes{Kind::kBytes};
    bytes.prefix = Prefix::kAlways;
    if (traits.steps.size() != 2 || traits.steps[0].kind != Kind::kSplitRegex) {
      return errorf(ErrorCode::kUnsupported,
                    "{}: tokenizer.ggml.add_space_prefix does not go with the split pattern '{}'", label, source.pre);
    }
    bytes.regex = traits.steps[0].regex;
    traits.steps = {std::move(bytes)};
  }
  if (traits.nfc) impl.normalizer = Normalizer({{NormalKind::kNfc, {}, {}, {}}});
  impl.pre_tokenizer = PreTokenizer(std::move(traits.steps));
  impl.decoder.byte_level = true;
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = traits.ignore_merges;
  GODWIT_ASSIGN(const auto merges, read_merges(source.merges, impl.vocab));
  impl.model.emplace<BpeModel>(impl.vocab, options, merges, impl.special);
  return traits.add_bos;
}

Status build_spm(const GgufVocab& source, Tokenizer::Impl& impl) {
  const std::string& label = impl.vocab.label();
  GODWIT_ASSIGN(SpmPipeline pipeline, spm_pipeline(source.add_space_prefix.value_or(true), source.space_prefix, label));
  impl.normalizer = std::move(pipeline.normalizer);
  impl.pre_tokenizer = std::move(pipeline.pre_tokenizer);
  impl.decoder = std::move(pipeline.decoder);
  ImpliedMerges implied;
  if (!source.merges.empty()) {
    GODWIT_ASSIGN(implied.merges, read_merges(source.merges, impl.vocab));
  } else {
    if (source.scores.empty()) return errorf(ErrorCode::kBadData, "{}: tokenizer.ggml.scores is missing", label);
    std::vector<bool> can_merge(source.tokens.size());
    for (size_t i = 0; i < can_merge.size(); ++i) {
      const GgufTokenType type = type_of(source, i);
      can_merge[i] = type == GgufTokenType::kNormal || type == GgufTokenType::kUserDefined;
    }
    GODWIT_ASSIGN(implied, implied_merges(impl.vocab, source.scores, can_merge));
  }
  impl.model.emplace<BpeModel>(impl.vocab, spm_options(impl.unk), implied.merges, impl.special, implied.extra_chars);
  return {};
}

Status build_unigram(const GgufVocab& source, Tokenizer::Impl& impl) {
  const std::string& label = impl.vocab.label();
  if (!source.precompiled_charsmap.empty()) {
    return errorf(ErrorCode::kUnsupported, "{}: tokenizer.ggml.precompiled_charsmap is not supported", label);
  }
  if (source.scores.empty()) return errorf(ErrorCode::kBadData, "{}: tokenizer.ggml.scores is missing", label);
  SpmPipeline pipeline =
      unigram_pipeline(source.add_space_prefix.value_or(true), source.remove_extra_whitespaces.value_or(false));
  impl.normalizer = std::move(pipeline.normalizer);
  impl.pre_tokenizer = std::move(pipeline.pre_tokenizer);
  impl.decoder = std::move(pipeline.decoder);
  std::vector<bool> unreachable = impl.special;
  for (size_t i = 0; i < unreachable.size(); ++i) {
    if (type_of(source, i) == GgufTokenType::kUnused) unreachable[i] = true;
  }
  impl.model.emplace<UnigramModel>(impl.vocab, std::vector<double>(source.scores.begin(), source.scores.end()),
                                   impl.unk, true, unreachable);
  if (impl.unk < 0 && !impl.covers_bytes()) {
    return errorf(ErrorCode::kBadData, "{}: there is neither an unknown token nor a token for every byte", label);
  }
  return {};
}

TokenDecoder spm_decoder(bool added_prefix) {
  TokenDecoder decoder;
  decoder.replacements.emplace_back("▁", " ");
  decoder.byte_fallback = true;
  if (added_prefix) {
    decoder.strip.assign(1, ' ');
    decoder.strip_count = 1;
  }
  return decoder;
}

}  // namespace

Result<SpmPipeline> spm_pipeline(bool add_prefix, std::string_view space_prefix, std::string_view label) {
  SpmPipeline out;
  out.decoder = spm_decoder(add_prefix);
  if (!add_prefix || space_prefix.empty()) {
    std::vector<NormalizerStep> steps;
    if (add_prefix) steps.push_back({NormalKind::kPrepend, {}, "▁", {}});
    steps.push_back({NormalKind::kReplace, " ", "▁", {}});
    out.normalizer = Normalizer(std::move(steps));
    return out;
  }
  if (space_prefix != "first" && space_prefix != "always") {
    return errorf(ErrorCode::kBadData, "{}: godwit.tokenizer.space_prefix is '{:.80}', not 'first' or 'always'", label,
                  space_prefix);
  }
  PreTokenizerStep metaspace{Kind::kMetaspace};
  metaspace.text = "▁";
  metaspace.prefix = space_prefix == "first" ? Prefix::kFirst : Prefix::kAlways;
  out.pre_tokenizer = PreTokenizer({std::move(metaspace)});
  return out;
}

SpmPipeline unigram_pipeline(bool add_prefix, bool squash_spaces) {
  SpmPipeline out;
  if (squash_spaces) out.normalizer = Normalizer({{NormalKind::kSquashSpaces, {}, {}, {}}});
  PreTokenizerStep metaspace{Kind::kMetaspace};
  metaspace.text = "▁";
  metaspace.prefix = add_prefix ? Prefix::kAlways : Prefix::kNever;
  metaspace.split = true;
  out.pre_tokenizer = PreTokenizer({std::move(metaspace)});
  out.decoder = spm_decoder(add_prefix);
  return out;
}

BpeOptions spm_options(TokenId unk) {
  BpeOptions options;
  options.byte_fallback = true;
  options.fuse_unk = true;
  options.unk = unk;
  return options;
}

Result<Tokenizer> Tokenizer::from_gguf(GgufVocab source, std::string_view label) {
  GODWIT_TRY(check_vocab(source, label));
  auto impl = std::make_shared<Impl>();
  impl->vocab = Vocab(std::string(label), source.tokens.size());
  impl->unk = source.unk;
  GODWIT_TRY(read_tokens(source, *impl));
  bool add_bos = false, add_eos = false;
  if (source.model == "gpt2") {
    GODWIT_ASSIGN(add_bos, build_byte_level(source, *impl));
  } else if (source.model == "llama") {
    GODWIT_TRY(build_spm(source, *impl));
    add_bos = true;
  } else if (source.model == "t5") {
    GODWIT_TRY(build_unigram(source, *impl));
    add_eos = true;
  } else {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: the tokenizer model '{:.80}' (tokenizer.ggml.model) is not supported (supported: gpt2, llama, t5)", label,
        source.model);
  }
  impl->bos = source.bos;
  impl->eos = source.eos;
  impl->eot = source.eot;
  impl->pad = source.pad;
  if (source.add_bos.value_or(add_bos) && impl->bos >= 0) impl->before.push_back(impl->bos);
  if (source.add_eos.value_or(add_eos) && impl->eos >= 0) impl->after.push_back(impl->eos);
  GODWIT_TRY(impl->finish());
  return Tokenizer(std::move(impl));
}

}  // namespace godwit
