// One client: reads a request, hands it on, writes the answer, and so on until either side has enough.
//
// While a request is being answered the connection goes on reading, which is how it learns that the client has gone.
// A client that ends its side of the connection counts as gone. All members run on the socket's strand.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include <boost/asio/steady_timer.hpp>

#include "server/reply.h"
#include "server/transport.h"

namespace godwit::server {

class Connection;

struct ConnectionHooks {
  RequestReader::Admit admit;                            // on the strand; must return soon
  std::function<void(RequestPtr, ReplyPtr)> on_request;  // on the strand; must return soon
  std::function<void(const RequestRecord&)> on_record;   // a request is over
  std::function<void(Connection*)> on_close;             // last
  std::shared_ptr<std::atomic<size_t>> body_bytes;       // of all connections; see Limits::all_body_bytes
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::unique_ptr<Transport> transport, const Limits& limits, std::shared_ptr<const ConnectionHooks> hooks);
  ~Connection();

  void start();  // on the strand
  boost::asio::any_io_executor strand() { return transport_->socket().get_executor(); }
  // No further request; the one that is being answered is finished first. From any thread.
  void drain();
  // Ends at once. From any thread.
  void abort();

 private:
  class Exchange;

  void read();
  void on_read(error_code ec, size_t bytes);
  void on_state(RequestReader::State state);
  void on_request();
  void refuse(const Response& response);
  void write(const std::string& bytes);
  void flush();
  void finished(const Exchange& exchange, bool reusable);
  void linger();
  void close();
  void wait_at_most(boost::asio::steady_timer& timer, int seconds, void (Connection::*then)());
  void read_timed_out();

  std::unique_ptr<Transport> transport_;
  const Limits limits_;
  std::shared_ptr<const ConnectionHooks> hooks_;
  RequestReader reader_;
  boost::asio::steady_timer read_timer_, write_timer_;
  std::string peer_;
  struct Memory;
  std::shared_ptr<Memory> memory_;  // of the request that arrives

  std::array<char, 16384> in_ = {};
  std::string out_, writing_;  // to be written; being written
  size_t written_ = 0;         // of writing_
  std::shared_ptr<Exchange> exchange_;
  bool reading_ = false;    // a read is under way
  bool draining_ = false;   // no further request
  bool last_ = false;       // what is in out_ is the end
  bool lingering_ = false;  // all is written; waits for the client to close
  bool closed_ = false;
};

}  // namespace godwit::server
