#include "text/spm_merges.h"

#include <algorithm>
#include <unordered_map>

#include "base/result.h"
#include "text/utf8.h"

namespace godwit {
namespace {

// Cutting a token in every place takes time quadratic in its length.
constexpr size_t kMaxTokenBytes = 1024;

// Dense ranks: the highest score has rank 0, equal scores share a rank.
std::vector<uint32_t> ranks_of(const std::vector<float>& scores) {
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto it = std::lower_bound(sorted.begin(), sorted.end(), scores[i], std::greater<>());
    ranks[i] = static_cast<uint32_t>(it - sorted.begin());
  }
  return ranks;
}

}  // namespace

Result<ImpliedMerges> implied_merges(const Vocab& vocab, const std::vector<float>& scores,
                                     const std::vector<bool>& can_merge) {
  ImpliedMerges out;
  const std::vector<uint32_t> ranks = ranks_of(scores);
  std::unordered_map<std::string, TokenId> extra;
  // The id of a part of a token: a token, or a character that has none.
  const auto part_id = [&](std::string_view part) -> TokenId {
    if (const auto id = vocab.find(part)) return can_merge[*id] ? *id : -1;
    const Utf8Char c = utf8_at(part, 0);
    if (!c.valid || c.length != part.size()) return -1;
    const auto next = vocab.size() + static_cast<TokenId>(out.extra_chars.size());
    const auto [it, added] = extra.emplace(part, next);
    if (added) out.extra_chars.emplace_back(part);
    return it->second;
  };
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (!vocab.has(id) || !can_merge[id]) continue;
    const std::string_view text = vocab.text(id);
    if (utf8_valid_end(text, 0) != text.size()) continue;
    size_t pos = utf8_at(text, 0).length;
    if (pos < text.size() && text.size() > kMaxTokenBytes) {
      return errorf(ErrorCode::kBadData, "{}: the token with id {} has {} bytes, more than {}", vocab.label(), id,
                    text.size(), kMaxTokenBytes);
    }
    for (; pos < text.size(); pos += utf8_at(text, pos).length) {
      const TokenId left = part_id(text.substr(0, pos));
      const TokenId right = left < 0 ? -1 : part_id(text.substr(pos));
      if (right >= 0) out.merges.push_back({left, right, id, ranks[id]});
    }
  }
  return out;
}

}  // namespace godwit
