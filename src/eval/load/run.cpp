#include "eval/load/run.h"

#include <chrono>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/load/answer.h"
#include "eval/load/request.h"

namespace godwit::load {
namespace asio = boost::asio;
namespace {

using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr double kTickSeconds = 0.01, kPauseAfterFailureSeconds = 0.1;
constexpr size_t kMostErrorBytes = size_t{64} << 10, kMostRecords = 10'000'000, kMostKinds = 64;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Runner {
 public:
  Runner(asio::io_context& io, HttpClient& client, const RunOptions& options, Workload workload,
         const std::function<void(const Progress&)>& on_progress, std::stop_token stop)
      : io_(io),
        client_(client),
        options_(options),
        workload_(std::move(workload)),
        on_progress_(on_progress),
        stop_(std::move(stop)),
        tick_(io),
        arrival_(io) {}

  LoadRun run() {
    start_ = Clock::now();
    next_ = workload_.next();
    tick_due_ = start_;
    tick();
    if (options_.users > 0) {
      for (int i = 0; i < options_.users; ++i) send_next(0);
    } else {
      send_due();
    }
    end_if_done();
    io_.restart();
    io_.run();
    client_.close_idle();
    run_.connections = client_.connections_opened();
    return std::move(run_);
  }

 private:
  struct Flight {  // a request on its way
    Flight(const Request& asked, double planned) : reader(asked.output_tokens + 16) { record.planned = planned; }
    AnswerReader reader;
    Record record;
    std::string refusal;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void tick() {
    tick_due_ += duration_of(kTickSeconds);
    tick_.expires_at(tick_due_);
    tick_.async_wait([this](error_code ec) {
      if (ec || done_) return;
      run_.loop_lag.add(std::chrono::duration<double>(Clock::now() - tick_due_).count());
      tick_due_ = std::max(tick_due_, Clock::now());  // one late ring, not a burst of them
      if (stop_.stop_requested()) {
        run_.open_at_stop = running_;
        run_.seconds = now();
        io_.stop();
        return;
      }
      report();
      tick();
    });
  }

  void report() {
    const int64_t over = static_cast<int64_t>(run_.records.size());
    const double by_count = static_cast<double>(over) / static_cast<double>(workload_.size());
    const double by_time = now() / options_.duration_seconds;
    on_progress_({.share = std::min(std::max(by_count, by_time), 1.0),
                  .seconds = now(),
                  .answered = over - failed_,
                  .failed = failed_,
                  .running = running_,
                  .tokens = tokens_});
  }

  bool time_is_up() const { return now() >= options_.duration_seconds; }

  // Open loop: all whose time has come.
  void send_due() {
    while (next_ && next_->arrival_seconds < options_.duration_seconds && running_ < options_.most_in_flight) {
      if (next_->arrival_seconds > now()) {
        arrival_.expires_at(start_ + duration_of(next_->arrival_seconds));
        arrival_.async_wait([this](error_code ec) {
          if (!ec) send_due();
        });
        return;
      }
      send_next(next_->arrival_seconds);
    }
    if (next_ && next_->arrival_seconds >= options_.duration_seconds) next_.reset();
  }

  // The user who asks it has nothing else to do.
  void send_next(double planned) {
    if (!next_ || run_.records.size() + static_cast<size_t>(running_) >= kMostRecords) {
      next_.reset();
      return;
    }
    const Request request = *next_;
    next_ = workload_.next();
    auto flight = std::make_shared<Flight>(request, planned);
    Call call{.path = request_path(options_),
              .body = request_body(options_, options_.prompts.make(request, sent_++), request.output_tokens, true),
              .timeout_seconds = options_.timeout_seconds,
              // An event is some hundred bytes; a server that pads each to 4 KiB is stopped.
              .most_body_bytes = (size_t{1} << 20) + static_cast<size_t>(request.output_tokens) * 4096,
              .on_body = [this, flight](int status, std::string_view bytes) { return on_body(*flight, status, bytes); },
              .on_end = [this, flight](
                            int status, std::string failure,
                            std::string detail) { on_end(*flight, status, std::move(failure), std::move(detail)); }};
    ++running_;
    flight->record.sent = now();
    run_.send_lag.add(flight->record.sent - planned);
    client_.start(std::move(call));
  }

  Status on_body(Flight& flight, int status, std::string_view bytes) {
    if (status != 200) {
      flight.refusal += bytes.substr(0, kMostErrorBytes - std::min(kMostErrorBytes, flight.refusal.size()));
      return {};
    }
    const double at = now();
    GODWIT_ASSIGN(const int tokens, flight.reader.feed(bytes, at, run_.gaps));
    if (tokens == 0) return {};
    tokens_ += tokens;
    const auto bin = static_cast<size_t>(at / LoadRun::kBinSeconds);
    if (bin >= run_.tokens_in_bin.size()) run_.tokens_in_bin.resize(bin + 1);
    run_.tokens_in_bin[bin] += static_cast<uint32_t>(tokens);
    return {};
  }

  void on_end(Flight& flight, int status, std::string failure, std::string detail) {
    const AnswerReader& answer = flight.reader;
    if (answer.server_failed()) {
      failure = "server";
    } else if (failure.empty() && status != 200) {
      failure = fmt::format("http {}", status);
      detail = error_message(flight.refusal);
    } else if (failure.empty() && !answer.done()) {
      failure = "protocol";
      detail = "the answer is no stream of events, or ends without saying so";
    } else if (failure.empty() && answer.events() == 0) {
      failure = "empty";
      detail = "the answer has no token";
    }
    Record& record = flight.record;
    record.end = now();
    record.first = answer.first_seconds(), record.last = answer.last_seconds();
    record.ok = failure.empty();
    record.prompt_tokens = answer.usage().prompt_tokens, record.cached_tokens = answer.usage().cached_tokens;
    const bool said = answer.usage().completion_tokens >= 0;
    record.output_tokens = said ? answer.usage().completion_tokens : answer.events();
    if (record.ok && !said) run_.tokens_from_usage = false;
    run_.records.push_back(record);
    run_.seconds = record.end;
    if (!record.ok) {
      ++failed_;
      // Kinds are few; but a hostile server may think of many statuses.
      if (run_.failures.size() >= kMostKinds && run_.failures.count(failure) == 0) failure = "other";
      Failures& same = run_.failures[failure];
      if (same.count++ == 0) same.example = std::move(detail);
    }
    go_on(record.ok);
  }

  void go_on(bool ok) {
    if (options_.users == 0) {
      --running_;
      arrival_.cancel();
      send_due();
    } else if (ok) {
      --running_;
      if (!time_is_up()) send_next(now());
    } else {  // a server that refuses at once must not make a busy loop of it
      auto pause = std::make_shared<asio::steady_timer>(io_, duration_of(kPauseAfterFailureSeconds));
      pause->async_wait([this, pause](error_code) {
        --running_;
        if (!time_is_up()) send_next(now());
        end_if_done();
      });
      return;
    }
    end_if_done();
  }

  void end_if_done() {
    if (running_ > 0 || (next_ && !time_is_up())) return;
    done_ = true;  // a tick that is due by now does not hear of the cancellation, and would go on for ever
    tick_.cancel();
    arrival_.cancel();
  }

  asio::io_context& io_;
  HttpClient& client_;
  const RunOptions& options_;
  Workload workload_;
  const std::function<void(const Progress&)>& on_progress_;
  std::stop_token stop_;
  asio::steady_timer tick_, arrival_;
  Clock::time_point start_, tick_due_;
  std::optional<Request> next_;
  int64_t running_ = 0, failed_ = 0, tokens_ = 0;
  uint64_t sent_ = 0;
  bool done_ = false;
  LoadRun run_;
};

}  // namespace

LoadRun run_load(asio::io_context& io, HttpClient& client, const RunOptions& options, Workload workload,
                 const std::function<void(const Progress&)>& on_progress, std::stop_token stop) {
  return Runner(io, client, options, std::move(workload), on_progress, std::move(stop)).run();
}

}  // namespace godwit::load
