// The way back to a client: one Reply per request.
//
// Members run on the connection's strand, except send(), which may be called from anywhere. What comes after the client
// has gone is dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "server/http.h"

namespace godwit::server {

// What is known about a request when it is over: for the log and the metrics.
struct RequestRecord {
  std::string id, principal, method, path, peer;
  int status = 0;  // 499: the client went away before its answer began
  bool gone = false;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;  // all 0 where nothing was generated
  double first_token_seconds = 0;
  std::string finish;  // reasons, joined
};

class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(Response response) = 0;                // all of it
  virtual void begin(Response head) = 0;                   // or in pieces: this,
  virtual void write(std::string bytes) = 0;               // these,
  virtual void end() = 0;                                  // and this
  virtual void when_gone(std::function<void()> tell) = 0;  // at most once; at once where the client has gone
  virtual boost::asio::any_io_executor strand() = 0;
  virtual RequestRecord& record() = 0;
};

using ReplyPtr = std::shared_ptr<Reply>;
using RequestPtr = std::shared_ptr<const Request>;

}  // namespace godwit::server
