// Server-sent events from bytes that arrive in any pieces. An event that never ends is an error, not memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <godwit/status.h>

namespace godwit::load {

class SseParser {
 public:
  explicit SseParser(size_t most_event_bytes = size_t{1} << 20) : most_(most_event_bytes) {}

  // Calls `on_data` with the data of each event that these bytes complete; other fields and comments are skipped. An
  // error of `on_data` ends it.
  Status feed(std::string_view bytes, const std::function<Status(std::string_view)>& on_data);

 private:
  Status end_line(const std::function<Status(std::string_view)>& on_data);

  size_t most_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false, at_start_ = true;
};

}  // namespace godwit::load
