// A listener, the threads that serve its connections, and an orderly end.
//
//   auto server = Server::listen(options);     // the port is taken; requests get 503 until
//   (*server)->serve(engine, service);         // the model is there
//   (*server)->wait();                         // until a signal
//
// Threads: `options.threads` run the sockets, each connection on a strand of its own; two more read bodies, render
// templates and tokenize, which may take long. The service's thread only hands tokens over. See
// docs/decisions/0007-server-threads.md.
#pragma once

#include <memory>

#include "server/options.h"
#include <godwit/service.h>

namespace godwit::server {

class Server {
 public:
  static Result<std::unique_ptr<Server>> listen(const Options& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  // From now on requests are answered. Both must live until wait() has returned.
  void serve(const Engine& engine, Service& service);

  // Until SIGINT or SIGTERM came and every request that had begun is answered; kCancelled when a second signal cut that
  // short.
  Status wait();
  void stop();   // what the first signal does
  void abort();  // what the second does

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit::server
