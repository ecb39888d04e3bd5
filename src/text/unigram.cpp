#include "text/unigram.h"

#include <algorithm>

#include "text/utf8.h"

namespace godwit {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr int32_t kUnreached = -1;

}  // namespace

UnigramModel::UnigramModel(const Vocab& vocab, std::vector<double> scores, TokenId unk, bool byte_fallback,
                           const std::vector<bool>& unreachable)
    : scores_(std::move(scores)), unk_(unk), byte_fallback_(byte_fallback), byte_ids_(256, -1) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  double lowest = 0;
  for (TokenId id = 0; id < vocab.size(); ++id) {
    lowest = std::min(lowest, scores_[id]);
    if (vocab.has(id) && !unreachable[id]) entries.emplace_back(vocab.text(id), id);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  trie_ = ByteTrie(std::move(entries));
  if (byte_fallback) byte_ids_ = vocab.byte_tokens();
  covers_bytes_ = std::none_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id < 0; });
}

void UnigramModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  struct Node {
    double score = 0;
    int32_t id = kUnreached;  // of the token that ends here; vocab size and more: an unknown character
    uint32_t length = 0;
  };
  const auto unknown = static_cast<int32_t>(scores_.size());
  std::vector<Node> best(piece.size() + 1);
  for (size_t pos = 0; pos < piece.size();) {
    const size_t char_length = utf8_at(piece, pos).length;
    const double base = best[pos].score;
    const auto offer = [&](size_t length, int32_t id, double score) {
      Node& node = best[pos + length];
      if (node.id == kUnreached || base + score > node.score) node = {base + score, id, static_cast<uint32_t>(length)};
    };
    bool whole_char = false;
    trie_.each_prefix(piece, pos, [&](size_t length, int32_t id) {
      offer(length, id, scores_[id]);
      whole_char |= length == char_length;
    });
    if (!whole_char) offer(char_length, unknown, unknown_score_);
    pos += char_length;
  }
  struct Step {
    int32_t id;
    uint32_t length;
  };
  std::vector<Step> path;
  for (size_t end = piece.size(); end > 0; end -= path.back().length) {
    path.push_back({best[end].id, best[end].length});
  }
  std::reverse(path.begin(), path.end());
  size_t pos = 0;
  for (size_t i = 0; i < path.size();) {
    if (path[i].id != unknown) {
      out.push_back(path[i].id);
      pos += path[i++].length;
      continue;
    }
    const size_t begin = pos;
    while (i < path.size() && path[i].id == unknown) pos += path[i++].length;
    encode_unknown(piece.substr(begin, pos - begin), out);
  }
}

void UnigramModel::encode_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : text) out.push_back(byte_id(c));
  } else if (unk_ >= 0) {
    out.push_back(unk_);
  }
}

void UnigramModel::encode_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  encode_unknown(bytes, out);
}

}  // namespace godwit
