#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace godwit {

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool keep_special)
    : tokenizer_(std::move(tokenizer)), keep_special_(keep_special) {}

std::string StreamDecoder::push(TokenId id) {
  tokenizer_.impl_->append_piece(id, keep_special_, state_, pending_);
  const size_t complete = pending_.size() - utf8_incomplete_tail(pending_);
  std::string out = utf8_lossy(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out = utf8_lossy(pending_);
  pending_.clear();
  state_ = {};
  return out;
}

}  // namespace godwit
