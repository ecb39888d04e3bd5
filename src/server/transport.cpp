#include "server/transport.h"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace godwit::server {
namespace {

namespace asio = boost::asio;

class Plain final : public Transport {
 public:
  explicit Plain(Tcp::socket socket) : socket_(std::move(socket)) {}
  void handshake(OnDone done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  void read_some(asio::mutable_buffer into, OnDone done) override { socket_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, OnDone done) override { socket_.async_write_some(from, std::move(done)); }
  Tcp::socket& socket() override { return socket_; }

 private:
  Tcp::socket socket_;
};

class Tls final : public Transport {
 public:
  Tls(Tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(OnDone done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, [done = std::move(done)](error_code ec) { done(ec, 0); });
  }
  void read_some(asio::mutable_buffer into, OnDone done) override { stream_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, OnDone done) override { stream_.async_write_some(from, std::move(done)); }
  Tcp::socket& socket() override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<Tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(Tcp::socket socket, asio::ssl::context* tls) {
  if (tls != nullptr) return std::make_unique<Tls>(std::move(socket), *tls);
  return std::make_unique<Plain>(std::move(socket));
}

}  // namespace godwit::server
