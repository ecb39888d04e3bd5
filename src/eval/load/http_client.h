// HTTP/1.1 requests to one server over kept connections, answers handed out as they arrive.
//
// The server is not trusted: headers, bodies and time have hard limits, and a call ends exactly once whatever it does.
// Single-threaded: everything happens in the io_context's run().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/status.h>

namespace boost::asio {
class io_context;
}

namespace godwit::load {

// Where requests go: http://HOST[:PORT][/BASE]; the base is /v1 unless given.
struct Target {
  std::string host, port, base;
  static Result<Target> parse(std::string_view url);
};

struct Call {
  std::string path;  // below the base
  std::string body;  // JSON to post; empty: a GET
  double timeout_seconds = 60;
  size_t most_body_bytes = size_t{64} << 20;
  // Bytes of the answer's body, with its status. An error ends the call as "protocol".
  std::function<Status(int status, std::string_view bytes)> on_body;
  // `failure` is empty when the answer came whole (whatever its status): else "connect", "timeout", "closed",
  // "protocol" or "too long".
  std::function<void(int status, std::string failure, std::string detail)> on_end;
};

class HttpClient {
 public:
  // Looks the host up. `key` goes along as a bearer token unless it is empty.
  static Result<std::unique_ptr<HttpClient>> open(boost::asio::io_context& io, const Target& target, std::string key);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void start(Call call);
  size_t connections_opened() const;
  void close_idle();

 private:
  struct Impl;
  class Exchange;
  explicit HttpClient(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace godwit::load
