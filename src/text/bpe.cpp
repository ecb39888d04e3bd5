#include "text/bpe.h"

#include <algorithm>

#include "text/byte_map.h"
#include "text/utf8.h"

namespace godwit {
namespace {

constexpr size_t kShortSymbols = 24;  // up to here a scan beats a heap
constexpr size_t kMaxCachedWordBytes = 64;
constexpr size_t kMaxCachedWords = 1 << 16;

constexpr uint64_t neighbor_key(char32_t a, char32_t b) {
  return static_cast<uint64_t>(a) << 32 | b;
}

}  // namespace

BpeModel::BpeModel(const Vocab& vocab, BpeOptions options, const std::vector<BpeMerge>& merges,
                   const std::vector<bool>& is_special, const std::vector<std::string>& extra_chars)
    : options_(options), vocab_size_(vocab.size()), pairs_(merges.size()), extra_chars_(extra_chars) {
  for (const BpeMerge& merge : merges) {
    pairs_.set(static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right),
               {merge.rank, static_cast<uint32_t>(merge.result)});
  }
  std::vector<bool> is_byte(static_cast<size_t>(vocab.size()), false);
  const std::vector<TokenId> byte_tokens = vocab.byte_tokens();
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    utf8_append(character, byte_to_char(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = options.byte_level      ? vocab.find_or(character, kNone)
                      : options.byte_fallback ? byte_tokens[byte]
                                              : kNone;
    if (byte_ids_[byte] >= 0) is_byte[byte_ids_[byte]] = true;
  }
  covers_bytes_ = std::none_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id < 0; });

  if (!options.byte_level) {
    bmp_ids_.assign(0x10000, kNone);
    const auto add_char = [&](std::string_view text, TokenId id) {
      const Utf8Char c = utf8_at(text, 0);
      if (!c.valid || c.length != text.size()) return;
      (c.code_point < 0x10000 ? bmp_ids_[c.code_point] : astral_ids_[c.code_point]) = id;
    };
    for (TokenId id = 0; id < vocab.size(); ++id) {
      if (vocab.has(id) && !is_special[id]) add_char(vocab.text(id), id);
    }
    for (size_t i = 0; i < extra_chars.size(); ++i) add_char(extra_chars[i], vocab.size() + static_cast<TokenId>(i));
    // Where a character can vanish or fuse with its neighbor, what stands on both sides of it matters to each other.
    can_cut_ = options.byte_fallback ? covers_bytes_ : options.unk >= 0 && !options.fuse_unk;
    for (const BpeMerge& merge : merges) {
      if (!can_cut_) break;
      const bool of_bytes =
          (merge.left < vocab.size() && is_byte[merge.left]) || (merge.right < vocab.size() && is_byte[merge.right]);
      if (of_bytes) can_cut_ = false;
      note_neighbors(vocab.text(merge.result));
    }
  }
  if (options.ignore_merges) {
    for (TokenId id = 0; id < vocab.size(); ++id) {
      if (!vocab.has(id) || is_special[id]) continue;
      if (!options.byte_level) {
        whole_.emplace(vocab.text(id), id);
      } else if (auto bytes = chars_to_bytes(vocab.text(id))) {
        whole_.emplace(std::move(*bytes), id);
      }
    }
  }
}

void BpeModel::note_neighbors(std::string_view token) {
  Utf8Char previous = utf8_at(token, 0);
  for (size_t pos = previous.length; pos < token.size();) {
    const Utf8Char current = utf8_at(token, pos);
    neighbors_.set(neighbor_key(previous.code_point, current.code_point), {});
    previous = current;
    pos += current.length;
  }
}

TokenId BpeModel::char_id(char32_t code_point) const {
  if (code_point < 0x10000) return bmp_ids_[code_point];
  const auto it = astral_ids_.find(code_point);
  return it == astral_ids_.end() ? kNone : it->second;
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const auto it = whole_.find(piece); it != whole_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  if (!can_cut_) return encode_word(piece, scratch, out);
  size_t begin = 0;
  Utf8Char previous = utf8_at(piece, 0);
  for (size_t pos = previous.length; pos < piece.size();) {
    const Utf8Char current = utf8_at(piece, pos);
    if (!neighbors_.find(neighbor_key(previous.code_point, current.code_point))) {
      encode_word(piece.substr(begin, pos - begin), scratch, out);
      begin = pos;
    }
    previous = current;
    pos += current.length;
  }
  encode_word(piece.substr(begin), scratch, out);
}

void BpeModel::encode_bytes(std::string_view bytes, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (options_.byte_level) return encode(bytes, scratch, out);
  for (const char c : bytes) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

void BpeModel::encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (word.size() > kMaxCachedWordBytes) return merge_word(word, scratch, out);
  if (const auto it = scratch.words_.find(word); it != scratch.words_.end()) {
    out.insert(out.end(), it->second.begin(), it->second.end());
    return;
  }
  const size_t before = out.size();
  merge_word(word, scratch, out);
  if (scratch.words_.size() >= kMaxCachedWords) scratch.words_.clear();
  scratch.words_.emplace(word, std::vector<TokenId>(out.begin() + static_cast<std::ptrdiff_t>(before), out.end()));
}

void BpeModel::merge_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  start_symbols(word, symbols);
  if (symbols.empty()) return;
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
  if (symbols.size() <= kShortSymbols) {
    merge_short(symbols);
  } else {
    merge_long(scratch);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    emit(symbols[i].id, out);
  }
}

void BpeModel::emit(TokenId id, std::vector<TokenId>& out) const {
  if (id < vocab_size_) {
    out.push_back(id);
    return;
  }
  // A character that is no token and found nothing to merge with.
  const std::string& character = extra_chars_[id - vocab_size_];
  const auto byte_id = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
  if (std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; })) {
    for (const char b : character) out.push_back(byte_id(b));
  } else if (options_.unk >= 0) {
    out.push_back(options_.unk);
  }
}

void BpeModel::start_symbols(std::string_view word, std::vector<BpeScratch::Symbol>& symbols) const {
  bool unknown_pending = false;
  const auto flush = [&] {
    if (unknown_pending) symbols.push_back({options_.unk, 0, 0});
    unknown_pending = false;
  };
  const auto unknown = [&] {
    if (options_.unk < 0) return;  // the library drops such characters too
    if (!options_.fuse_unk) flush();
    unknown_pending = true;
  };
  if (options_.byte_level) {
    for (const char c : word) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
      if (id < 0) {
        unknown();
        continue;
      }
      flush();
      symbols.push_back({id, 0, 0});
    }
    return flush();
  }
  for (size_t pos = 0; pos < word.size();) {
    const Utf8Char c = utf8_at(word, pos);
    const std::string_view character = word.substr(pos, c.length);
    pos += c.length;
    const TokenId id = char_id(c.code_point);
    const auto byte_id = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
    if (id >= 0) {
      flush();
      symbols.push_back({id, 0, 0});
    } else if (options_.byte_fallback &&
               std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char b : character) symbols.push_back({byte_id(b), 0, 0});
    } else {
      unknown();
    }
  }
  flush();
}

void BpeModel::merge_short(std::vector<BpeScratch::Symbol>& symbols) const {
  constexpr uint32_t kNoRank = ~0u;
  std::array<uint32_t, kShortSymbols> ranks;
  std::array<TokenId, kShortSymbols> results;
  const auto look = [&](int32_t i) {
    const int32_t next = symbols[i].next;
    const FlatMap::Value* found = next < 0 ? nullptr : pair(symbols[i].id, symbols[next].id);
    ranks[i] = found ? found->first : kNoRank;
    results[i] = found ? static_cast<TokenId>(found->second) : kNone;
  };
  for (size_t i = 0; i < symbols.size(); ++i) look(static_cast<int32_t>(i));
  for (;;) {
    int32_t best = -1;
    for (int32_t i = 0; i >= 0; i = symbols[i].next) {
      if (ranks[i] != kNoRank && (best < 0 || ranks[i] < ranks[best])) best = i;
    }
    if (best < 0) return;
    const int32_t gone = symbols[best].next;
    symbols[best].id = results[best];
    symbols[best].next = symbols[gone].next;
    if (symbols[best].next >= 0) symbols[symbols[best].next].previous = best;
    look(best);
    if (symbols[best].previous >= 0) look(symbols[best].previous);
  }
}

void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto candidate = [&](int32_t i, bool sift) {
    const int32_t next = i < 0 ? -1 : symbols[i].next;
    if (next < 0) return;
    const FlatMap::Value* found = pair(symbols[i].id, symbols[next].id);
    if (!found) return;
    heap.push_back({found->first, i, symbols[i].id, symbols[next].id, static_cast<TokenId>(found->second)});
    if (sift) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (size_t i = 0; i < symbols.size(); ++i) candidate(static_cast<int32_t>(i), false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    auto& symbol = symbols[top.position];
    // Stale: one of the two has merged with something else meanwhile.
    if (symbol.id != top.left || symbol.next < 0 || symbols[symbol.next].id != top.right) continue;
    const int32_t gone = symbol.next;
    symbols[gone].id = kNone;
    symbol.id = top.result;
    symbol.next = symbols[gone].next;
    if (symbol.next >= 0) symbols[symbol.next].previous = top.position;
    candidate(symbol.previous, true);
    candidate(top.position, true);
  }
}

}  // namespace godwit
