// A client's byte stream, plain or through TLS. All handlers run on the strand that the socket was accepted with; one
// read and one write may be under way at a time.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

namespace godwit::server {

using boost::system::error_code;
using Tcp = boost::asio::ip::tcp;

class Transport {
 public:
  using OnDone = std::function<void(error_code, size_t bytes)>;
  virtual ~Transport() = default;
  virtual void handshake(OnDone done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, OnDone done) = 0;
  virtual void write_some(boost::asio::const_buffer from, OnDone done) = 0;
  virtual Tcp::socket& socket() = 0;
};

// `tls` null: plain.
std::unique_ptr<Transport> make_transport(Tcp::socket socket, boost::asio::ssl::context* tls);

}  // namespace godwit::server
