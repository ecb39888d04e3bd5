// Byte-pair encoding of one piece of text: starting from bytes or characters, the best-ranked adjacent pair merges
// until none can. Time is O(n log n) in the piece, whatever the text.
//
// Ranks decide (0 is best); among equal ranks the leftmost pair merges first. Byte-level models start from bytes;
// others from characters, with byte tokens "<0xNN>" or the unknown token for characters outside the vocabulary. A
// BpeModel is immutable and safe to share between threads; a BpeScratch belongs to one encode() call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/flat_map.h"
#include "text/token.h"
#include "text/vocab.h"
#include <godwit/status.h>

namespace godwit {

struct BpeOptions {
  bool byte_level = false;
  bool byte_fallback = false;
  bool fuse_unk = false;       // a run of unknown characters is one unknown token
  bool ignore_merges = false;  // a piece that is a token stays whole, whether merges lead to it or not
  TokenId unk = -1;
};

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId result;
  uint32_t rank;
};

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Words met before, and the work space of the merge.
class BpeScratch {
 private:
  friend class BpeModel;
  struct Symbol {
    TokenId id;
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    TokenId left;
    TokenId right;
    TokenId result;
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::unordered_map<std::string, std::vector<TokenId>, StringHash, std::equal_to<>> words_;
};

class BpeModel {
 public:
  // `extra_chars`: characters that take part in merges though they are no tokens; they have the ids that follow the
  // vocabulary. `is_special[id]`: never the outcome of plain text. REQUIRES: the ids in `merges` exist.
  BpeModel(const Vocab& vocab, BpeOptions options, const std::vector<BpeMerge>& merges,
           const std::vector<bool>& is_special, const std::vector<std::string>& extra_chars = {});

  // Appends the ids of a piece. REQUIRES: for models over characters, the piece is valid UTF-8.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;
  // Appends the ids of bytes that are no text. REQUIRES: covers_bytes().
  void encode_bytes(std::string_view bytes, BpeScratch& scratch, std::vector<TokenId>& out) const;
  // Every byte has a token of its own.
  bool covers_bytes() const { return covers_bytes_; }

  const BpeOptions& options() const { return options_; }
  const FlatMap& pairs() const { return pairs_; }  // left << 32 | right → rank, result

 private:
  static constexpr TokenId kNone = -1;
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void merge_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void start_symbols(std::string_view word, std::vector<BpeScratch::Symbol>& symbols) const;
  void merge_short(std::vector<BpeScratch::Symbol>& symbols) const;
  void merge_long(BpeScratch& scratch) const;
  TokenId char_id(char32_t code_point) const;
  void emit(TokenId id, std::vector<TokenId>& out) const;
  void note_neighbors(std::string_view token);
  const FlatMap::Value* pair(TokenId left, TokenId right) const {
    return pairs_.find(static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right));
  }

  BpeOptions options_;
  TokenId vocab_size_;
  FlatMap pairs_;
  std::array<TokenId, 256> byte_ids_{};  // of the byte's character, or of "<0xNN>"
  std::vector<TokenId> bmp_ids_;         // code points below 0x10000
  std::unordered_map<char32_t, TokenId> astral_ids_;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> whole_;  // for ignore_merges: bytes → id
  std::vector<std::string> extra_chars_;
  FlatMap neighbors_;     // pairs of characters that occur inside a merged token
  bool can_cut_ = false;  // no merge crosses a pair of characters that is not in neighbors_
  bool covers_bytes_ = false;
};

}  // namespace godwit
