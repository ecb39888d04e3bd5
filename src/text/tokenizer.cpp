#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/result.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace godwit {
namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;
constexpr size_t kMaxAddedTokens = 1 << 20;

std::optional<TokenId> optional_id(TokenId id) {
  return id >= 0 ? std::optional(id) : std::nullopt;
}

}  // namespace

Status Tokenizer::Impl::add_token(AddedToken token) {
  if (token.content.size() > kMaxAddedTokenBytes || added.size() >= kMaxAddedTokens) {
    return errorf(ErrorCode::kBadData, "{}: an added token of {} bytes, or more than {} of them, exceeds the limits",
                  vocab.label(), token.content.size(), kMaxAddedTokens);
  }
  GODWIT_TRY(vocab.add(token.id, token.content));
  added.push_back(std::move(token));
  return {};
}

void Tokenizer::Impl::mark_specials() {
  std::stable_sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  special.assign(static_cast<size_t>(vocab.size()), false);
  for (const AddedToken& token : added) special[token.id] = special[token.id] || token.special;
}

Status Tokenizer::Impl::finish() {
  RegexScratch scratch(0);
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  std::vector<bool> is_added(static_cast<size_t>(vocab.size()), false);
  for (const AddedToken& token : added) {
    is_added[token.id] = true;
    if (token.normalized) {
      GODWIT_ASSIGN(std::string pattern, normalizer.apply(token.content, scratch));
      normalized_patterns.push_back(std::move(pattern));
      normalized.push_back(token);
    } else {
      raw_patterns.push_back(token.content);
      raw.push_back(token);
    }
  }
  raw_matcher = AddedTokenMatcher(std::move(raw), std::move(raw_patterns));
  normalized_matcher = AddedTokenMatcher(std::move(normalized), std::move(normalized_patterns));
  pieces.resize(static_cast<size_t>(vocab.size()));
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (vocab.has(id)) pieces[id] = decoder.piece(vocab.text(id), is_added[id]);
  }
  return {};
}

bool Tokenizer::Impl::covers_bytes() const {
  if (const auto* bpe = std::get_if<BpeModel>(&model)) return bpe->covers_bytes();
  return std::get<UnigramModel>(model).covers_bytes();
}

void Tokenizer::Impl::encode_bytes(std::string_view bytes, EncodeScratch& scratch, std::vector<TokenId>& out) const {
  if (const auto* bpe = std::get_if<BpeModel>(&model)) {
    bpe->encode_bytes(bytes, scratch.bpe, out);
  } else {
    std::get<UnigramModel>(model).encode_bytes(bytes, out);
  }
}

// Valid text between broken bytes.
Status Tokenizer::Impl::encode_text(std::string_view text, bool at_start, bool prefix, bool parse_special,
                                    EncodeScratch& scratch, std::vector<TokenId>& out) const {
  for (const TextSection& section : raw_matcher.split(text, parse_special)) {
    if (section.id >= 0) {
      out.push_back(section.id);
      continue;
    }
    const bool first = section.begin == 0;
    GODWIT_TRY(encode_section(text.substr(section.begin, section.end - section.begin), at_start && first,
                              prefix || !first, parse_special, scratch, out));
  }
  return {};
}

// Text between added tokens.
Status Tokenizer::Impl::encode_section(std::string_view text, bool at_start, bool prefix, bool parse_special,
                                       EncodeScratch& scratch, std::vector<TokenId>& out) const {
  GODWIT_ASSIGN(const std::string normal, normalizer.apply(text, scratch.regex, prefix));
  for (const TextSection& section : normalized_matcher.split(normal, parse_special)) {
    if (section.id >= 0) {
      out.push_back(section.id);
      continue;
    }
    const bool first = section.begin == 0;
    GODWIT_TRY(encode_plain(normal.substr(section.begin, section.end - section.begin), at_start && first,
                            prefix || !first, scratch, out));
  }
  return {};
}

// Normalized text in which no added token is left.
Status Tokenizer::Impl::encode_plain(std::string text, bool at_start, bool prefix, EncodeScratch& scratch,
                                     std::vector<TokenId>& out) const {
  GODWIT_ASSIGN(const TextPieces cut, pre_tokenizer.apply(std::move(text), at_start, prefix, scratch.regex));
  for (const TextRange& range : cut.ranges) {
    const std::string_view piece = std::string_view(cut.text).substr(range.begin, range.end - range.begin);
    if (const auto* bpe = std::get_if<BpeModel>(&model)) {
      bpe->encode(piece, scratch.bpe, out);
    } else {
      std::get<UnigramModel>(model).encode(piece, out);
    }
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  EncodeScratch scratch(text.size());
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 8);
  if (options.add_bos) out = impl_->before;
  std::string repaired;
  if (!impl_->covers_bytes() && utf8_valid_end(text, 0) != text.size()) {
    repaired = utf8_lossy(text);
    text = repaired;
  }
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = utf8_valid_end(text, pos);
    if (end > pos) {
      const bool first = pos == 0 && !options.continues;
      GODWIT_TRY(impl_->encode_text(text.substr(pos, end - pos), first, first, options.parse_special, scratch, out));
    }
    size_t broken_end = end;
    while (broken_end < text.size()) {
      const Utf8Char c = utf8_at(text, broken_end);
      if (c.valid) break;
      broken_end += c.length;
    }
    if (broken_end > end) impl_->encode_bytes(text.substr(end, broken_end - end), scratch, out);
    pos = broken_end;
  }
  if (options.add_eos) out.insert(out.end(), impl_->after.begin(), impl_->after.end());
  return out;
}

void Tokenizer::Impl::append_piece(TokenId id, bool keep_special, DecodeState& state, std::string& out) const {
  if (!vocab.has(id) || (special[id] && !keep_special)) return;
  std::string first;
  std::string_view piece = pieces[id];
  if (state.first && decoder.metaspace_prefix) {
    const auto by_id = [](const AddedToken& token, TokenId wanted) { return token.id < wanted; };
    const auto it = std::lower_bound(added.begin(), added.end(), id, by_id);
    first = decoder.first_piece(vocab.text(id), it != added.end() && it->id == id);
    piece = first;
  }
  if (decoder.spaces_between && !state.first) out += ' ';
  state.first = false;
  while (state.at_start && state.stripped < decoder.strip_count && piece.starts_with(decoder.strip)) {
    piece.remove_prefix(decoder.strip.size());
    ++state.stripped;
  }
  if (!piece.empty()) state.at_start = false;
  out += piece;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool keep_special) const {
  std::string out;
  DecodeState state;
  for (const TokenId id : ids) impl_->append_piece(id, keep_special, state, out);
  return out;
}

std::string_view Tokenizer::piece(TokenId id) const {
  return impl_->vocab.has(id) ? std::string_view(impl_->pieces[id]) : std::string_view();
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return impl_->vocab.has(id) ? std::string_view(impl_->vocab.text(id)) : std::string_view();
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  return impl_->vocab.find(token_text);
}
bool Tokenizer::pieces_join() const {
  return !impl_->decoder.spaces_between;
}
bool Tokenizer::is_special(TokenId id) const {
  return impl_->vocab.has(id) && impl_->special[id];
}
int Tokenizer::vocab_size() const {
  return impl_->vocab.size();
}
std::optional<TokenId> Tokenizer::bos() const {
  return optional_id(impl_->bos);
}
std::optional<TokenId> Tokenizer::eos() const {
  return optional_id(impl_->eos);
}
std::optional<TokenId> Tokenizer::eot() const {
  return optional_id(impl_->eot);
}
std::optional<TokenId> Tokenizer::unk() const {
  return optional_id(impl_->unk);
}
std::optional<TokenId> Tokenizer::pad() const {
  return optional_id(impl_->pad);
}

bool Tokenizer::adds_bos() const {
  return impl_->bos >= 0 && !impl_->before.empty() && impl_->before.front() == impl_->bos;
}

bool Tokenizer::adds_eos() const {
  return impl_->eos >= 0 && !impl_->after.empty() && impl_->after.back() == impl_->eos;
}

}  // namespace godwit
