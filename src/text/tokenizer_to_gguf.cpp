// Tokenizer::to_gguf_vocab: finds the GGUF metadata from which from_gguf builds an equal tokenizer, or says why not.
#include <algorithm>

#include "base/result.h"
#include "text/pre_names.h"
#include "text/spm_merges.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_impl.h"

namespace godwit {
namespace {

using Impl = Tokenizer::Impl;
using Kind = PreTokenizerStep::Kind;
using Prefix = PreTokenizerStep::Prefix;
using NormalKind = NormalizerStep::Kind;

tl::unexpected<Error> not_in_gguf(const Impl& impl, std::string_view what) {
  return errorf(ErrorCode::kUnsupported, "{}: {} cannot be written to GGUF", impl.vocab.label(), what);
}

// Merges by rank. REQUIRES: their ids are in the vocabulary.
std::vector<BpeMerge> ranked_merges(const BpeModel& model) {
  std::vector<BpeMerge> merges;
  model.pairs().for_each([&](uint64_t key, FlatMap::Value value) {
    merges.push_back({static_cast<TokenId>(key >> 32), static_cast<TokenId>(key & 0xFFFFFFFF),
                      static_cast<TokenId>(value.second), value.first});
  });
  std::sort(merges.begin(), merges.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return merges;
}

void write_merges(const std::vector<BpeMerge>& merges, const Vocab& vocab, GgufVocab& out) {
  for (const BpeMerge& merge : merges) out.merges.push_back(vocab.text(merge.left) + " " + vocab.text(merge.right));
}

void write_tokens(const Impl& impl, bool byte_fallback, GgufVocab& out) {
  const auto count = static_cast<size_t>(impl.vocab.size());
  out.tokens.resize(count);
  out.types.assign(count, static_cast<int32_t>(GgufTokenType::kNormal));
  for (TokenId id = 0; id < impl.vocab.size(); ++id) {
    out.tokens[id] = impl.vocab.text(id);
    if (impl.vocab.has(id)) continue;
    out.tokens[id] = fmt::format("[PAD{}]", id);
    out.types[id] = static_cast<int32_t>(GgufTokenType::kUnused);
  }
  if (byte_fallback) {
    for (const TokenId id : impl.vocab.byte_tokens()) {
      if (id >= 0) out.types[id] = static_cast<int32_t>(GgufTokenType::kByte);
    }
  }
  std::vector<uint8_t> flags(count, 0);
  for (const AddedToken& token : impl.added) {
    const GgufTokenType type = !token.special         ? GgufTokenType::kUserDefined
                               : token.id == impl.unk ? GgufTokenType::kUnknown
                                                      : GgufTokenType::kControl;
    out.types[token.id] = static_cast<int32_t>(type);
    flags[token.id] = (token.lstrip ? kTokenLstrip : 0) | (token.rstrip ? kTokenRstrip : 0) |
                      (token.single_word ? kTokenSingleWord : 0) |
                      (token.normalized && !impl.normalizer.empty() ? kTokenNormalized : 0);
  }
  if (std::any_of(flags.begin(), flags.end(), [](uint8_t f) { return f != 0; })) out.token_flags = std::move(flags);
}

Status write_byte_level(const Impl& impl, const BpeModel& model, GgufVocab& out) {
  out.model = "gpt2";
  PreTraits traits;
  traits.steps = impl.pre_tokenizer.steps();
  traits.ignore_merges = model.options().ignore_merges;
  const auto& normal = impl.normalizer.steps();
  traits.nfc = normal.size() == 1 && normal[0].kind == NormalKind::kNfc;
  if (!normal.empty() && !traits.nfc) return not_in_gguf(impl, "this normalizer of a byte-level BPE");
  if (traits.steps.size() == 1 && traits.steps[0].prefix == Prefix::kAlways && !traits.steps[0].regex.empty()) {
    traits.steps[0].prefix = Prefix::kNever;
    out.add_space_prefix = true;
  }
  TokenDecoder expected;
  expected.byte_level = true;
  if (!(impl.decoder == expected)) return not_in_gguf(impl, "this decoder of a byte-level BPE");
  if (!model.covers_bytes()) return not_in_gguf(impl, "a byte-level vocabulary without a token for every byte");
  GODWIT_ASSIGN(out.pre, name_of_pre(traits, impl.vocab.label()));
  write_tokens(impl, false, out);
  write_merges(ranked_merges(model), impl.vocab, out);
  return {};
}

bool same_steps(const std::vector<NormalizerStep>& a, const std::vector<NormalizerStep>& b) {
  const auto same = [](const NormalizerStep& x, const NormalizerStep& y) {
    return x.kind == y.kind && x.pattern == y.pattern && x.content == y.content && x.regex.empty() && y.regex.empty();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool same_steps(const std::vector<PreTokenizerStep>& a, const std::vector<PreTokenizerStep>& b) {
  const auto same = [](const PreTokenizerStep& x, const PreTokenizerStep& y) {
    return x.kind == y.kind && x.behavior == y.behavior && x.invert == y.invert && x.text == y.text &&
           x.prefix == y.prefix && x.split == y.split && x.regex.empty() && y.regex.empty();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool same_pipeline(const Impl& impl, const SpmPipeline& pipeline) {
  std::vector<PreTokenizerStep> steps = impl.pre_tokenizer.steps();
  // Where every space has become "▁", cutting at spaces does nothing (Gemma's file has such a step).
  const auto& normal = impl.normalizer.steps();
  const bool no_spaces = !normal.empty() && normal.back().kind == NormalKind::kReplace && normal.back().pattern == " ";
  if (no_spaces) {
    std::erase_if(steps, [](const auto& step) { return step.kind == Kind::kSplitString && step.text == " "; });
  }
  return same_steps(normal, pipeline.normalizer.steps()) && same_steps(steps, pipeline.pre_tokenizer.steps()) &&
         impl.decoder == pipeline.decoder;
}

// Scores that put the tokens in the order of their merges. Whether they imply the same merges is for the caller to see.
std::vector<float> scores_from(const std::vector<BpeMerge>& merges, size_t tokens) {
  std::vector<float> scores(tokens, -static_cast<float>(merges.size()));
  std::vector<bool> seen(tokens, false);
  int order = 0;
  for (const BpeMerge& merge : merges) {
    if (seen[merge.result]) continue;
    seen[merge.result] = true;
    scores[merge.result] = -static_cast<float>(order++);
  }
  return scores;
}

// Every token's merges stand together in the ranking, and they are exactly those that scores imply.
Result<bool> scores_suffice(const Impl& impl, const std::vector<BpeMerge>& merges, const GgufVocab& out) {
  std::vector<bool> seen(out.tokens.size(), false);
  TokenId current = -1;
  for (const BpeMerge& merge : merges) {
    if (merge.result == current) continue;
    if (seen[merge.result]) return false;
    seen[merge.result] = true;
    current = merge.result;
  }
  std::vector<bool> can_merge(out.tokens.size());
  for (size_t i = 0; i < can_merge.size(); ++i) {
    const auto type = static_cast<GgufTokenType>(out.types[i]);
    can_merge[i] = type == GgufTokenType::kNormal || type == GgufTokenType::kUserDefined;
  }
  GODWIT_ASSIGN(const ImpliedMerges implied, implied_merges(impl.vocab, out.scores, can_merge));
  if (implied.merges.size() != merges.size()) return false;
  const auto& pairs = std::get<BpeModel>(impl.model).pairs();
  return std::all_of(implied.merges.begin(), implied.merges.end(), [&](const BpeMerge& merge) {
    const auto* found = pairs.find(static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right));
    return found && found->second == static_cast<uint32_t>(merge.result);
  });
}

Status write_spm(const Impl& impl, const BpeModel& model, GgufVocab& out) {
  out.model = "llama";
  out.pre = "default";
  const BpeOptions& options = model.options();
  if (!options.byte_fallback || options.ignore_merges || !(options.fuse_unk || model.covers_bytes())) {
    return not_in_gguf(impl, "a BPE over characters without byte fallback");
  }
  bool found = false;
  for (const auto& [add_prefix, scheme] :
       {std::pair{true, ""}, std::pair{true, "first"}, std::pair{true, "always"}, std::pair{false, ""}}) {
    GODWIT_ASSIGN(const SpmPipeline pipeline, spm_pipeline(add_prefix, scheme, impl.vocab.label()));
    if (!same_pipeline(impl, pipeline)) continue;
    out.add_space_prefix = add_prefix;
    out.space_prefix = scheme;
    found = true;
    break;
  }
  if (!found) return not_in_gguf(impl, "this combination of normalizer, pre-tokenizer and decoder");
  write_tokens(impl, true, out);
  const std::vector<BpeMerge> merges = ranked_merges(model);
  if (std::any_of(merges.begin(), merges.end(), [&](const BpeMerge& merge) {
        return merge.left >= impl.vocab.size() || merge.right >= impl.vocab.size();
      })) {
    return not_in_gguf(impl, "a vocabulary that lacks characters of its own tokens");
  }
  out.scores = scores_from(merges, out.tokens.size());
  GODWIT_ASSIGN(const bool enough, scores_suffice(impl, merges, out));
  if (!enough) write_merges(merges, impl.vocab, out);
  return {};
}

Status write_unigram(const Impl& impl, const UnigramModel& model, GgufVocab& out) {
  out.model = "t5";
  out.pre = "default";
  bool found = false;
  for (const bool add_prefix : {true, false}) {
    for (const bool squash : {false, true}) {
      if (found || !same_pipeline(impl, unigram_pipeline(add_prefix, squash))) continue;
      out.add_space_prefix = add_prefix;
      out.remove_extra_whitespaces = squash;
      found = true;
    }
  }
  if (!found || !model.byte_fallback()) {
    return not_in_gguf(impl, "this combination of normalizer, pre-tokenizer, decoder and byte fallback");
  }
  write_tokens(impl, true, out);
  out.scores.assign(model.scores().begin(), model.scores().end());
  return {};
}

}  // namespace

Result<GgufVocab> Tokenizer::to_gguf_vocab() const {
  GgufVocab out;
  const auto* bpe = std::get_if<BpeModel>(&impl_->model);
  if (!bpe) {
    GODWIT_TRY(write_unigram(*impl_, std::get<UnigramModel>(impl_->model), out));
  } else if (bpe->options().byte_level) {
    GODWIT_TRY(write_byte_level(*impl_, *bpe, out));
  } else {
    GODWIT_TRY(write_spm(*impl_, *bpe, out));
  }
  const bool bos_fits = impl_->before.empty() || (impl_->before.size() == 1 && adds_bos());
  const bool eos_fits = impl_->after.empty() || (impl_->after.size() == 1 && adds_eos());
  if (!bos_fits || !eos_fits) return not_in_gguf(*impl_, "a template with tokens other than BOS and EOS");
  out.add_bos = adds_bos();
  out.add_eos = adds_eos();
  out.bos = impl_->bos;
  out.eos = impl_->eos;
  out.eot = impl_->eot;
  out.unk = impl_->unk;
  out.pad = impl_->pad;
  return out;
}

}  // namespace godwit
