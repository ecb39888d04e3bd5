// An answer of an OpenAI-compatible server while it arrives: when its tokens came, and what its usage says.
#pragma once

#include <string>
#include <string_view>

#include "eval/load/histogram.h"
#include "eval/load/sse.h"

namespace godwit::load {

struct Usage {
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = 0;  // -1: not said
};

// The usage of an answer or of an event; kBadData where it is none. `text` is a whole JSON object.
Result<Usage> parse_usage(std::string_view text);

// What a refusal's body says, in at most 200 printable characters.
std::string error_message(std::string_view body);

class AnswerReader {
 public:
  // `most_events`: that may carry tokens; a server that sends more than was asked for is stopped.
  explicit AnswerReader(int64_t most_events) : most_events_(most_events) {}

  // Bytes of the body at a time; the gaps between tokens go into `gaps`. kBadData: it is no such answer, or the server
  // says that it failed. Returns how many tokens came.
  Result<int> feed(std::string_view bytes, double now, Histogram& gaps);

  bool done() const { return done_; }  // its end was said: "[DONE]" or a reason to finish
  double first_seconds() const { return first_; }
  double last_seconds() const { return last_; }
  int64_t events() const { return events_; }
  const Usage& usage() const { return usage_; }
  bool server_failed() const { return server_failed_; }

 private:
  Status event(std::string_view data, double now, Histogram& gaps);

  SseParser sse_;
  int64_t most_events_, events_ = 0;
  double first_ = 0, last_ = 0;
  bool done_ = false, server_failed_ = false;
  Usage usage_;
};

}  // namespace godwit::load
