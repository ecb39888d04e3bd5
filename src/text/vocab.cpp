#include "text/vocab.h"

#include <algorithm>

#include "base/result.h"

namespace godwit {
namespace {

constexpr size_t kMaxTokens = 16 << 20;
constexpr size_t kMaxHoles = 64 << 10;
constexpr size_t kMaxTokenBytes = 64 << 10;

}  // namespace

Vocab::Vocab(std::string label, size_t expected)
    : label_(std::move(label)), max_tokens_(static_cast<int64_t>(std::min(kMaxTokens, 2 * expected + kMaxHoles))) {}

Status Vocab::add(int64_t id, std::string_view text) {
  if (id < 0 || id >= max_tokens_) {
    return errorf(ErrorCode::kBadData,
                  "{}: the token '{:.80}' has the id {}, outside 0 to {}; ids must be (nearly) contiguous", label_,
                  text, id, max_tokens_ - 1);
  }
  if (text.size() > kMaxTokenBytes) {
    return errorf(ErrorCode::kBadData, "{}: the token with id {} has {} bytes, more than {}", label_, id, text.size(),
                  kMaxTokenBytes);
  }
  const auto known = index_.find(text);
  if (known != index_.end()) {
    if (known->second == id) return {};
    return errorf(ErrorCode::kBadData, "{}: the token '{:.80}' has two ids, {} and {}", label_, text, known->second,
                  id);
  }
  if (has(static_cast<TokenId>(id))) {
    return errorf(ErrorCode::kBadData, "{}: the tokens '{:.80}' and '{:.80}' share the id {}", label_, texts_[id], text,
                  id);
  }
  if (static_cast<size_t>(id) >= texts_.size()) texts_.resize(static_cast<size_t>(id) + 1);
  if (text.empty()) return {};
  texts_[id] = text;
  index_.emplace(texts_[id], static_cast<TokenId>(id));
  return {};
}

std::optional<TokenId> Vocab::find(std::string_view text) const {
  const auto it = index_.find(text);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

std::vector<TokenId> Vocab::byte_tokens() const {
  std::vector<TokenId> ids(256);
  for (int byte = 0; byte < 256; ++byte) ids[byte] = find_or(fmt::format("<0x{:02X}>", byte), -1);
  return ids;
}

}  // namespace godwit
