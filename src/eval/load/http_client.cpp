#include "eval/load/http_client.h"

#include <array>
#include <chrono>
#include <optional>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/result.h"

namespace godwit::load {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

namespace {

constexpr size_t kMostHeaderBytes = size_t{32} << 10, kPieceBytes = size_t{16} << 10;

struct Line {  // a connection
  explicit Line(asio::io_context& io) : stream(io), buffer(kMostHeaderBytes + kPieceBytes) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

std::string failure_of(error_code ec, bool connecting) {
  if (ec == beast::error::timeout) return "timeout";
  if (connecting) return "connect";
  if (ec == http::error::body_limit || ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return "too long";
  if (ec == http::error::partial_message || ec == http::error::end_of_stream) return "closed";
  if (ec.category() == http::make_error_code(http::error::bad_version).category()) return "protocol";
  return "closed";
}

}  // namespace

Result<Target> Target::parse(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  auto bad = [&](std::string_view why) {
    return errorf(ErrorCode::kInvalidArgument,
                  "'{}' is no URL to measure: {}; give http://HOST:PORT or http://HOST:PORT/v1", url, why);
  };
  if (url.starts_with("https://")) return bad("only plain HTTP is spoken here (a local proxy may speak TLS)");
  if (!url.starts_with(kScheme)) return bad("it does not begin with http://");
  for (char c : url)
    if (c <= ' ' || c == 0x7f || c == '?' || c == '#' || c == '@') return bad("it has a character that none may have");
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash), base = rest.substr(slash);
  while (base.ends_with('/')) base.remove_suffix(1);
  Target target{.host = {}, .port = "80", .base = base.empty() ? "/v1" : std::string(base)};
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("a bracket is open");
    target.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority.front() != ':') return bad("its host is unclear");
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    target.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (target.host.empty()) return bad("there is no host in it");
  if (!authority.empty()) {
    target.port = authority.substr(1);
    if (target.port.empty() || target.port.size() > 5 ||
        target.port.find_first_not_of("0123456789") != std::string::npos || std::stoi(target.port) > 65535)
      return bad("its port is no number from 0 to 65535");
  }
  return target;
}

struct HttpClient::Impl {
  explicit Impl(asio::io_context& context) : io(context) {}
  asio::io_context& io;
  Target target;
  std::string key, host_header;
  Tcp::resolver::results_type endpoints;
  std::vector<std::unique_ptr<Line>> idle;
  size_t opened = 0;
};

// One call on one connection; on a second one where a kept connection turns out to be closed.
class HttpClient::Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Impl> client, Call call)
      : client_(std::move(client)),
        call_(std::move(call)),
        deadline_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                         std::chrono::duration<double>(call_.timeout_seconds))) {}

  void start() {
    request_.method(call_.body.empty() ? http::verb::get : http::verb::post);
    request_.target(client_->target.base + call_.path);
    request_.set(http::field::host, client_->host_header);
    request_.set(http::field::user_agent, "godwit-bench");
    if (!client_->key.empty()) request_.set(http::field::authorization, "Bearer " + client_->key);
    if (!call_.body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = std::move(call_.body);
    request_.prepare_payload();
    if (!client_->idle.empty()) {
      line_ = std::move(client_->idle.back());
      client_->idle.pop_back();
      kept_ = true;
      line_->stream.expires_at(deadline_);
      write();
    } else {
      connect();
    }
  }

 private:
  void connect() {
    kept_ = false;
    line_ = std::make_unique<Line>(client_->io);
    line_->stream.expires_at(deadline_);
    line_->stream.async_connect(client_->endpoints, [self = shared_from_this()](error_code ec, const Tcp::endpoint&) {
      if (ec) return self->fail(ec, true);
      ++self->client_->opened;
      error_code ignored;
      self->line_->stream.socket().set_option(Tcp::no_delay(true), ignored);
      self->write();
    });
  }

  void write() {
    http::async_write(line_->stream, request_, [self = shared_from_this()](error_code ec, size_t) {
      // A server that refuses a long body may answer before it has read all of it: the answer says why.
      if (ec && ec != asio::error::broken_pipe && ec != asio::error::connection_reset) return self->fail(ec, false);
      self->read_header();
    });
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    parser_->body_limit(call_.most_body_bytes);
    http::async_read_header(line_->stream, line_->buffer, *parser_, [self = shared_from_this()](error_code ec, size_t) {
      if (ec && self->kept_ && !self->parser_->got_some() && ec != beast::error::timeout) return self->connect();
      if (ec) return self->fail(ec, false);
      self->status_ = self->parser_->get().result_int();
      self->read_body();
    });
  }

  void read_body() {
    if (parser_->is_done()) return finish();
    parser_->get().body().data = piece_.data();
    parser_->get().body().size = piece_.size();
    http::async_read_some(line_->stream, line_->buffer, *parser_, [self = shared_from_this()](error_code ec, size_t) {
      if (ec == http::error::need_buffer) ec = {};
      const size_t bytes = self->piece_.size() - self->parser_->get().body().size;
      // What is in the buffer already is parsed without the socket, whose timer would end it.
      if (std::chrono::steady_clock::now() >= self->deadline_) ec = beast::error::timeout;
      if (bytes > 0)
        if (Status status = self->call_.on_body(self->status_, {self->piece_.data(), bytes}); !status)
          return self->end(status.error().code == ErrorCode::kExhausted ? "too long" : "protocol",
                           status.error().message);
      if (ec) return self->fail(ec, false);
      self->read_body();
    });
  }

  void finish() {
    if (parser_->get().keep_alive() && line_->buffer.size() == 0) {
      line_->stream.expires_never();
      client_->idle.push_back(std::move(line_));
    }
    end({}, {});
  }

  void fail(error_code ec, bool connecting) { end(failure_of(ec, connecting), ec.message()); }

  void end(std::string failure, std::string detail) {
    if (line_) line_->stream.close();
    call_.on_end(status_, std::move(failure), std::move(detail));
  }

  std::shared_ptr<Impl> client_;
  Call call_;
  const std::chrono::steady_clock::time_point deadline_;
  http::request<http::string_body> request_;
  std::unique_ptr<Line> line_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, kPieceBytes> piece_;
  bool kept_ = false;
  int status_ = 0;
};

HttpClient::HttpClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::open(asio::io_context& io, const Target& target, std::string key) {
  for (char c : key)
    if (c <= ' ' || c >= 0x7f)
      return errorf(ErrorCode::kInvalidArgument, "the API key has a character that a header cannot carry");
  auto impl = std::make_shared<Impl>(io);
  impl->target = target;
  impl->key = std::move(key);
  impl->host_header =
      (target.host.find(':') == std::string::npos ? target.host : "[" + target.host + "]") + ":" + target.port;
  error_code ec;
  impl->endpoints = Tcp::resolver(io).resolve(target.host, target.port, ec);
  if (ec) return errorf(ErrorCode::kIo, "host '{}' cannot be found: {}", target.host, ec.message());
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

void HttpClient::start(Call call) {
  std::make_shared<Exchange>(impl_, std::move(call))->start();
}
size_t HttpClient::connections_opened() const {
  return impl_->opened;
}
void HttpClient::close_idle() {
  impl_->idle.clear();
}

}  // namespace godwit::load
