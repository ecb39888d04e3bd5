// Bytes of a connection into requests, and answers into bytes: HTTP/1.1 without a socket.
//
// Nothing is trusted. Whatever could be read in two ways (two lengths, a length and chunks, an unknown transfer
// coding, two hosts) is refused, since a proxy in front may have read it the other way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/options.h"

namespace godwit::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method, path, query;
  Headers headers;  // names in lower case
  std::string body;
  std::shared_ptr<void> memory;  // what the body counts as, until the request is gone
  bool keep_alive = true;
  bool chunks = true;  // whether the client understands chunked answers (HTTP/1.1)

  std::string_view header(std::string_view name) const;  // empty where absent
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers = {};
};

class RequestReader {
 public:
  // A request with a body is admitted by its head, before anything of the body is read; or it has its answer.
  using Admit = std::function<std::optional<Response>(const Request& head)>;
  explicit RequestReader(const Limits& limits, Admit admit = {});
  ~RequestReader();

  enum class State {
    kMore,      // of the request is to come
    kContinue,  // likewise, and the client waits for "100 Continue"; said once
    kDone,      // take() has it
    kBad,       // error() has the answer; the connection cannot go on
  };
  // Takes bytes; those behind a finished request wait for next().
  State feed(std::string_view bytes);
  // Goes on with the next request of the connection.
  State next();
  Request take();
  const Response& error() const { return error_; }

  bool empty() const;  // not a byte of a request has come
  size_t held_bytes() const { return held_.size(); }
  void hold(std::string_view bytes) { held_ += bytes; }  // for next()

 private:
  struct Parser;
  State parse();
  State check_header();
  State bad(int status, std::string message);
  Request head() const;

  Limits limits_;
  Admit admit_;
  std::unique_ptr<Parser> parser_;
  std::string held_;  // not parsed yet
  Response error_;
};

// Where an answer's end is: known from the start, told by chunks, or where the connection closes.
enum class Framing { kLength, kChunks, kClose };
std::string response_head(const Response& response, Framing framing, bool keep_alive);
std::string chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace godwit::server
