#include "server/http.h"

#include <algorithm>
#include <cctype>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include "server/api_error.h"

namespace godwit::server {
namespace http = boost::beast::http;
using boost::system::error_code;

struct RequestReader::Parser : http::request_parser<http::string_body> {
  bool any = false, checked = false;
};

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

RequestReader::RequestReader(const Limits& limits, Admit admit) : limits_(limits), admit_(std::move(admit)) {
  next();
}
RequestReader::~RequestReader() = default;

bool RequestReader::empty() const {
  return !parser_->any && held_.empty();
}

RequestReader::State RequestReader::next() {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser_->body_limit(limits_.body_bytes);
  return parse();
}

RequestReader::State RequestReader::feed(std::string_view bytes) {
  held_ += bytes;
  return parse();
}

RequestReader::State RequestReader::parse() {
  size_t used = 0;
  State state = State::kMore;
  while (!parser_->is_done() && used < held_.size()) {
    error_code ec;
    const size_t taken = parser_->put(boost::asio::buffer(held_.data() + used, held_.size() - used), ec);
    used += taken;
    parser_->any |= taken > 0;
    if (ec == http::error::need_more) break;
    if (ec == http::error::header_limit)
      return bad(431, fmt::format("the headers are longer than {} bytes", limits_.header_bytes));
    if (ec == http::error::body_limit)
      return bad(413, fmt::format("the body is longer than {} bytes", limits_.body_bytes));
    if (ec) return bad(400, fmt::format("this is no HTTP request: {}", ec.message()));
    if (parser_->is_header_done() && !parser_->checked) {
      parser_->checked = true;
      parser_->eager(true);
      state = check_header();
      if (state == State::kBad) return state;
    }
  }
  held_.erase(0, used);
  if (parser_->is_done()) return State::kDone;
  // A body is taken as it comes; what stays is a line that does not end.
  if (held_.size() > limits_.header_bytes)
    return bad(parser_->checked ? 400 : 431, fmt::format("a line is longer than {} bytes", limits_.header_bytes));
  return state;
}

RequestReader::State RequestReader::check_header() {
  const auto& head = parser_->get();
  if (head.version() != 10 && head.version() != 11) return bad(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  if (head.count(http::field::content_length) > 1) return bad(400, "Content-Length is given twice");
  if (head.count(http::field::host) > 1 || (head.version() == 11 && head.count(http::field::host) == 0))
    return bad(400, "exactly one Host header is needed");
  const auto codings = head.count(http::field::transfer_encoding);
  if (codings > 1 || (codings == 1 && lower(head[http::field::transfer_encoding]) != "chunked"))
    return bad(501, "the only Transfer-Encoding understood is 'chunked'");
  if (codings == 1 && head.version() == 10) return bad(400, "HTTP/1.0 has no chunks");
  if (head.target().empty() || head.target()[0] != '/') return bad(400, "the request's target is not a path");
  if (parser_->is_done()) return State::kMore;
  if (auto refusal = admit_ ? admit_(this->head()) : std::nullopt) {
    error_ = std::move(*refusal);
    return State::kBad;
  }
  const std::string expect = lower(head[http::field::expect]);
  if (expect.empty()) return State::kMore;
  if (expect != "100-continue") return bad(417, "the only expectation understood is '100-continue'");
  return State::kContinue;
}

RequestReader::State RequestReader::bad(int status, std::string message) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  error_ = to_response(error, ApiStyle::kOpenAi, {});
  return State::kBad;
}

Request RequestReader::head() const {
  const auto& message = parser_->get();
  Request request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find('?')));
  if (const size_t at = target.find('?'); at != std::string_view::npos)
    request.query = std::string(target.substr(at + 1));
  for (const auto& field : message)
    request.headers.emplace_back(lower(field.name_string()), std::string(field.value()));
  request.keep_alive = message.keep_alive();
  request.chunks = message.version() == 11;
  return request;
}

Request RequestReader::take() {
  Request request = head();
  request.body = std::move(parser_->get().body());
  return request;
}

std::string response_head(const Response& response, Framing framing, bool keep_alive) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: godwit\r\n", response.status,
                                 std::string_view(reason.data(), reason.size()));
  if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  // "Not modified" has no body, and a length would be that of the body it stands for.
  if (framing == Framing::kLength && response.status != 304)
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  if (framing == Framing::kChunks) head += "Transfer-Encoding: chunked\r\n";
  head += keep_alive && framing != Framing::kClose ? "\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace godwit::server
