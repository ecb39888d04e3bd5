#include "eval/load/sse.h"

#include <algorithm>

#include "base/result.h"

namespace godwit::load {

Status SseParser::feed(std::string_view bytes, const std::function<Status(std::string_view)>& on_data) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);  // of one "\r\n"
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > most_)
      return errorf(ErrorCode::kExhausted, "an event of more than {} bytes", most_);
    line_ += part;
    if (end == std::string_view::npos) return {};
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    GODWIT_TRY(end_line(on_data));
  }
  return {};
}

Status SseParser::end_line(const std::function<Status(std::string_view)>& on_data) {
  std::string_view line = line_;
  if (at_start_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  at_start_ = false;
  Status status;
  if (line.empty()) {
    if (has_data_) status = on_data(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(std::min<size_t>(line.size(), 5));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return status;
}

}  // namespace godwit::load
