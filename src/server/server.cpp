#include "server/server.h"

#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <openssl/ssl.h>
#include <sys/resource.h>

#include "base/result.h"
#include "server/api_error.h"
#include "server/connection.h"
#include "server/router.h"

namespace godwit::server {
namespace asio = boost::asio;
namespace {

constexpr int kWorkers = 2;  // that prepare requests

Result<std::unique_ptr<asio::ssl::context>> tls_context(const Options& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty())
    return errorf(ErrorCode::kInvalidArgument, "TLS needs both a certificate and a key; give --tls-cert and --tls-key");
  if (options.tls_certificate.empty()) return nullptr;
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code ec;
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  context->use_certificate_chain_file(options.tls_certificate, ec);
  if (ec)
    return errorf(ErrorCode::kBadData, "{}: no certificate in PEM form: {}", options.tls_certificate, ec.message());
  context->use_private_key_file(options.tls_key, asio::ssl::context::pem, ec);
  if (ec)
    return errorf(ErrorCode::kBadData, "{}: no private key of that certificate in PEM form: {}", options.tls_key,
                  ec.message());
  return context;
}

// Every connection is a file descriptor.
void raise_descriptor_limit(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(wanted)) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(wanted));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct Server::Impl {
  explicit Impl(const Options& o)
      : options(o), acceptor(asio::make_strand(io)), retry(acceptor.get_executor()), signals(io), router(options) {}

  Status open();
  void run();
  void accept();
  void on_accept(error_code ec, Tcp::socket socket);
  void wait_for_signal();
  void stop();
  void abort();
  void each_connection(void (Connection::*what)());

  const Options options;
  asio::io_context io;
  asio::thread_pool workers{kWorkers};
  Tcp::acceptor acceptor;
  asio::steady_timer retry;
  asio::signal_set signals;
  std::unique_ptr<asio::ssl::context> tls;
  Router router;
  std::shared_ptr<const ConnectionHooks> hooks;

  std::mutex mutex;  // of the rest
  std::map<Connection*, std::weak_ptr<Connection>> connections;
  bool stopping = false, aborted = false;
  std::condition_variable changed;
  std::vector<std::jthread> threads;
};

Status Server::Impl::open() {
  GODWIT_TRY(router.load_keys());
  GODWIT_ASSIGN(tls, tls_context(options));
  raise_descriptor_limit(options.limits.connections + 256);
  error_code ec;
  const auto address = asio::ip::make_address(options.address, ec);
  if (ec) return errorf(ErrorCode::kInvalidArgument, "'{}' is no IP address to listen on", options.address);
  const Tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(Tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    return errorf(ErrorCode::kIo, "port {} of {} cannot be listened on: {}", options.port, options.address,
                  ec.message());

  auto made = std::make_shared<ConnectionHooks>();
  made->admit = [this](const Request& head) { return router.admit(head); };
  made->body_bytes = std::make_shared<std::atomic<size_t>>(0);
  made->on_request = [this](RequestPtr request, ReplyPtr reply) {
    router.identify(*request, *reply);
    asio::post(workers,
               [this, request = std::move(request), reply = std::move(reply)] { router.handle(request, reply); });
  };
  made->on_record = [this](const RequestRecord& record) { router.over(record); };
  made->on_close = [this](Connection* connection) {
    std::lock_guard lock(mutex);
    connections.erase(connection);
    changed.notify_all();
  };
  hooks = std::move(made);
  accept();
  for (int i = 0; i < options.threads; ++i) threads.emplace_back([this] { run(); });
  return {};
}

void Server::Impl::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& e) {  // of one connection; the others go on
      std::fprintf(stderr, "godwit: a connection failed: %s\n", e.what());
    }
  }
}

void Server::Impl::accept() {
  acceptor.async_accept(asio::make_strand(io),
                        [this](error_code ec, Tcp::socket socket) { on_accept(ec, std::move(socket)); });
}

void Server::Impl::on_accept(error_code ec, Tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (ec) {  // out of descriptors, most likely: those who are being served go on, and this one waits
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
    return;
  }
  std::unique_lock lock(mutex);
  if (connections.size() < static_cast<size_t>(options.limits.connections) && !stopping) {
    auto connection = std::make_shared<Connection>(make_transport(std::move(socket), tls.get()), options.limits, hooks);
    connections.emplace(connection.get(), connection);
    lock.unlock();
    asio::post(connection->strand(), [connection] { connection->start(); });
    return accept();
  }
  lock.unlock();
  if (!tls) {
    const Response full = to_response({.status = 503,
                                       .message = "too many connections; try again later",
                                       .code = "too_many_connections",
                                       .retry_after_seconds = 1},
                                      ApiStyle::kOpenAi, {});
    socket.non_blocking(true, ec);
    socket.write_some(asio::buffer(response_head(full, Framing::kLength, false) + full.body), ec);
  }
  accept();
}

void Server::Impl::each_connection(void (Connection::*what)()) {
  std::vector<std::shared_ptr<Connection>> list;
  {
    std::lock_guard lock(mutex);
    for (auto& entry : connections)
      if (auto connection = entry.second.lock()) list.push_back(std::move(connection));
  }
  for (auto& connection : list) (connection.get()->*what)();
}

void Server::Impl::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  asio::post(acceptor.get_executor(), [this] {
    error_code ec;
    acceptor.close(ec);
    retry.cancel();
  });
  each_connection(&Connection::drain);
  changed.notify_all();
}

void Server::Impl::abort() {
  {
    std::lock_guard lock(mutex);
    aborted = true;
  }
  stop();
  each_connection(&Connection::abort);
  changed.notify_all();
}

void Server::Impl::wait_for_signal() {
  signals.async_wait([this](error_code ec, int) {
    if (ec) return;
    bool second = false;
    {
      std::lock_guard lock(mutex);
      second = stopping;
    }
    second ? abort() : stop();
    wait_for_signal();
  });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::listen(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  GODWIT_TRY(impl->open());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  if (!impl_) return;
  abort();
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_for(lock, std::chrono::seconds(2), [&] { return impl_->connections.empty(); });
  }
  impl_->workers.join();
  impl_->io.stop();
  impl_->threads.clear();
}

uint16_t Server::port() const {
  error_code ec;
  return impl_->acceptor.local_endpoint(ec).port();
}

void Server::serve(const Engine& engine, Service& service) {
  impl_->router.serve(engine, service);
}

Status Server::wait() {
  Impl& s = *impl_;
  error_code ec;
  s.signals.add(SIGINT, ec);
  s.signals.add(SIGTERM, ec);
  s.wait_for_signal();
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.stopping && s.connections.empty(); });
  lock.unlock();
  s.signals.cancel(ec);
  if (s.aborted) return errorf(ErrorCode::kCancelled, "a second signal ended the requests that were being answered");
  return {};
}

void Server::stop() {
  impl_->stop();
}
void Server::abort() {
  impl_->abort();
}

}  // namespace godwit::server
