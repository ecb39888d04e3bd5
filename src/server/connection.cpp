#include "server/connection.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "server/api_error.h"

namespace godwit::server {
namespace asio = boost::asio;

namespace {
constexpr int kLingerSeconds = 2;
// Of the kernel's memory. It would lend megabytes to each client that does not read.
constexpr int kSendBufferBytes = 256 << 10;
constexpr size_t kPipelinedBytes = size_t{64} << 10;  // of later requests, while one is being answered
}  // namespace

class Connection::Exchange final : public Reply, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Connection> connection, const Request& request)
      : connection_(std::move(connection)), keep_alive_(request.keep_alive), chunks_(request.chunks) {
    record_.method = request.method;
    record_.path = request.path;
    record_.peer = connection_->peer_;
  }

  void send(Response response) override {
    asio::dispatch(strand(), [self = shared_from_this(), response = std::move(response)]() mutable {
      if (!self->open()) return;
      const bool reusable = self->reusable();
      self->record_.status = response.status;
      self->connection_->last_ = !reusable;
      std::string bytes = response_head(response, Framing::kLength, reusable);
      if (self->record_.method != "HEAD") bytes += response.body;
      self->connection_->write(bytes);
      self->over(reusable);
    });
  }
  void begin(Response response) override {
    if (!open()) return;
    record_.status = response.status;
    connection_->write(response_head(response, chunks_ ? Framing::kChunks : Framing::kClose, reusable()));
  }
  void write(std::string bytes) override {
    if (open()) connection_->write(chunks_ ? chunk(bytes) : std::move(bytes));
  }
  void end() override {
    if (!open()) return;
    const bool again = reusable() && chunks_;
    connection_->last_ = !again;
    connection_->write(chunks_ ? std::string(kLastChunk) : std::string());
    over(again);
  }
  void when_gone(std::function<void()> tell) override {
    if (gone_) return tell();
    tell_ = std::move(tell);
  }
  asio::any_io_executor strand() override { return connection_->strand(); }
  RequestRecord& record() override { return record_; }

  void gone() {
    if (!open()) return;
    gone_ = true;
    record_.gone = true;
    if (record_.status == 0) record_.status = 499;
    if (auto tell = std::move(tell_)) tell();
    connection_->hooks_->on_record(record_);
  }

 private:
  bool open() const { return !gone_ && !over_; }
  bool reusable() const { return keep_alive_ && !connection_->draining_; }
  void over(bool reusable) {
    over_ = true;
    tell_ = nullptr;
    connection_->hooks_->on_record(record_);
    connection_->finished(*this, reusable);
  }

  std::shared_ptr<Connection> connection_;
  bool keep_alive_, chunks_;
  bool gone_ = false, over_ = false;
  std::function<void()> tell_;
  RequestRecord record_;
};

// Bytes of a request, counted until it is gone.
struct Connection::Memory {
  explicit Memory(std::shared_ptr<std::atomic<size_t>> of_all) : all(std::move(of_all)) {}
  ~Memory() { *all -= bytes; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void add(size_t more) {
    bytes += more;
    *all += more;
  }
  std::shared_ptr<std::atomic<size_t>> all;
  size_t bytes = 0;
};

Connection::Connection(std::unique_ptr<Transport> transport, const Limits& limits,
                       std::shared_ptr<const ConnectionHooks> hooks)
    : transport_(std::move(transport)),
      limits_(limits),
      hooks_(std::move(hooks)),
      reader_(limits_, hooks_->admit),
      read_timer_(strand()),
      write_timer_(strand()) {}

Connection::~Connection() {
  hooks_->on_close(this);
}

void Connection::start() {
  error_code ec;
  transport_->socket().set_option(Tcp::no_delay(true), ec);
  transport_->socket().set_option(asio::socket_base::keep_alive(true), ec);
  transport_->socket().set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ec);
  if (const auto end = transport_->socket().remote_endpoint(ec); !ec) peer_ = end.address().to_string();
  wait_at_most(read_timer_, limits_.request_seconds, &Connection::close);
  transport_->handshake([self = shared_from_this()](error_code failed, size_t) {
    if (failed || self->closed_) return self->close();
    self->wait_at_most(self->read_timer_, self->limits_.idle_seconds, &Connection::read_timed_out);
    self->read();
  });
}

void Connection::drain() {
  asio::post(strand(), [self = shared_from_this()] {
    self->draining_ = true;
    if (!self->exchange_ && !self->last_ && self->out_.empty() && self->writing_.empty()) self->close();
  });
}

void Connection::abort() {
  asio::post(strand(), [self = shared_from_this()] { self->close(); });
}

void Connection::wait_at_most(asio::steady_timer& timer, int seconds, void (Connection::*then)()) {
  timer.expires_after(std::chrono::seconds(seconds));
  timer.async_wait([self = shared_from_this(), then, &timer](error_code ec) {
    // A timer that was set again while this was on its way does not count.
    if (!ec && !self->closed_ && timer.expiry() <= std::chrono::steady_clock::now()) (self.get()->*then)();
  });
}

void Connection::read() {
  if (reading_ || closed_) return;
  reading_ = true;
  transport_->read_some(asio::buffer(in_), [self = shared_from_this()](error_code ec, size_t bytes) {
    self->reading_ = false;
    self->on_read(ec, bytes);
  });
}

void Connection::on_read(error_code ec, size_t bytes) {
  if (closed_) return;
  if (ec) return close();
  const std::string_view data(in_.data(), bytes);
  if (lingering_ || last_) return read();  // nobody wants this
  if (exchange_) {
    reader_.hold(data);
    return reader_.held_bytes() > kPipelinedBytes ? close() : read();
  }
  if (reader_.empty()) wait_at_most(read_timer_, limits_.request_seconds, &Connection::read_timed_out);
  if (!memory_) memory_ = std::make_shared<Memory>(hooks_->body_bytes);
  memory_->add(bytes);
  if (*hooks_->body_bytes > limits_.all_body_bytes)
    return refuse(to_response({.status = 503,
                               .message = "too many long requests at once; try again later",
                               .code = "too_many_bytes",
                               .retry_after_seconds = 1},
                              ApiStyle::kOpenAi, {}));
  on_state(reader_.feed(data));
}

void Connection::on_state(RequestReader::State state) {
  switch (state) {
    case RequestReader::State::kContinue:
      write("HTTP/1.1 100 Continue\r\n\r\n");
      break;
    case RequestReader::State::kMore:
      break;
    case RequestReader::State::kDone:
      on_request();
      break;
    case RequestReader::State::kBad:
      return refuse(reader_.error());
  }
  read();
}

// An answer to what is no request, and the connection's last.
void Connection::refuse(const Response& response) {
  RequestRecord record;
  record.peer = peer_;
  record.status = response.status;
  hooks_->on_record(record);
  memory_.reset();
  last_ = true;
  write(response_head(response, Framing::kLength, false) + response.body);
  read();
}

void Connection::on_request() {
  read_timer_.cancel();
  auto request = std::make_shared<Request>(reader_.take());
  request->memory = std::move(memory_);
  exchange_ = std::make_shared<Exchange>(shared_from_this(), *request);
  hooks_->on_request(std::move(request), exchange_);
}

void Connection::read_timed_out() {
  if (exchange_ || last_) return;
  if (reader_.empty()) return close();
  refuse(to_response({.status = 408, .message = "the request took too long to arrive"}, ApiStyle::kOpenAi, {}));
}

// The next request of the connection, if there may be one.
void Connection::finished(const Exchange& exchange, bool reusable) {
  if (exchange_.get() != &exchange || !reusable || closed_) return;
  // Posted, or a client with many small requests in one packet would have its answers nest.
  asio::post(strand(), [self = shared_from_this()] {
    if (self->closed_) return;
    self->exchange_.reset();
    if (self->draining_) {
      self->last_ = true;
      return self->write({});
    }
    const bool begun = self->reader_.held_bytes() > 0;
    self->wait_at_most(self->read_timer_, begun ? self->limits_.request_seconds : self->limits_.idle_seconds,
                       &Connection::read_timed_out);
    self->on_state(self->reader_.next());
  });
}

void Connection::write(const std::string& bytes) {
  if (closed_) return;
  // A whole answer may be longer than the backlog; pieces that pile up may not.
  if (!out_.empty() && out_.size() + bytes.size() > limits_.backlog_bytes) return close();
  out_ += bytes;
  if (writing_.empty()) flush();
}

void Connection::flush() {
  if (written_ == writing_.size()) {
    writing_ = std::move(out_);
    out_.clear();
    written_ = 0;
  }
  if (writing_.empty()) {
    write_timer_.cancel();
    return last_ ? linger() : void();
  }
  wait_at_most(write_timer_, limits_.write_seconds, &Connection::close);
  transport_->write_some(asio::buffer(writing_) + written_, [self = shared_from_this()](error_code ec, size_t bytes) {
    if (self->closed_) return;
    if (ec) return self->close();
    self->written_ += bytes;
    self->flush();
  });
}

// Closing while the client still sends would reset the connection, and it might never see its answer.
void Connection::linger() {
  error_code ec;
  lingering_ = true;
  exchange_.reset();
  transport_->socket().shutdown(Tcp::socket::shutdown_send, ec);
  wait_at_most(read_timer_, kLingerSeconds, &Connection::close);
  read();
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  error_code ec;
  transport_->socket().close(ec);
  read_timer_.cancel();
  write_timer_.cancel();
  if (auto exchange = std::move(exchange_)) exchange->gone();
}

}  // namespace godwit::server
