// Sends a workload to a server and notes when what came back.
//
// Open loop: a request goes out when its time has come, whether earlier ones are answered or not, as people do. Closed
// loop: each of `users` waits for an answer before asking again. One thread sends and reads everything; how late it was
// itself is part of the result, so that its own limits are not taken for the server's.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <stop_token>

#include "eval/load/histogram.h"
#include "eval/load/http_client.h"
#include "eval/load/workload.h"

namespace godwit::load {

struct RunOptions {
  std::string model;  // as the server calls it
  bool chat = true;   // /chat/completions; else /completions
  bool ignore_eos = true;
  int users = 0;              // closed loop; 0: open
  int most_in_flight = 1024;  // of the open loop; those beyond wait, and count as late
  double duration_seconds = std::numeric_limits<double>::infinity();  // no request begins after that
  double timeout_seconds = 600;                                       // of one request
  PromptMaker prompts;
};

struct Record {
  double planned = 0, sent = 0, first = 0, last = 0, end = 0;  // seconds after the start; first, last: tokens
  int64_t prompt_tokens = -1, cached_tokens = 0, output_tokens = 0;
  bool ok = false;

  double ttft() const { return first - sent; }
  double per_token() const {  // mean time between tokens
    return output_tokens > 1 ? (last - first) / static_cast<double>(output_tokens - 1) : 0;
  }
};

struct Failures {
  int64_t count = 0;
  std::string example;
};

struct LoadRun {
  static constexpr double kBinSeconds = 0.1;
  std::vector<Record> records;               // in the order of their ends
  Histogram gaps;                            // between tokens as they arrived; several in one packet are 0 apart
  Histogram send_lag;                        // from when a request should have gone out to when it did
  Histogram loop_lag;                        // of a timer that rings all 10 ms
  std::map<std::string, Failures> failures;  // by kind: "connect", "timeout", "http 429", "server", …
  std::vector<uint32_t> tokens_in_bin;
  bool tokens_from_usage = true;  // else some server did not say, and events that carry text are counted
  size_t connections = 0;
  double seconds = 0;                   // from the first request to the last end, or to when it was stopped
  std::optional<int64_t> open_at_stop;  // it was stopped, with so many requests open; of these there are no records
};

struct Progress {
  double share = 0, seconds = 0;
  int64_t answered = 0, failed = 0, running = 0, tokens = 0;
};

// What the server calls its (first) model.
Result<std::string> ask_model(boost::asio::io_context& io, HttpClient& client);
// Measures with two short requests what a word and an empty prompt cost.
Status calibrate(boost::asio::io_context& io, HttpClient& client, RunOptions& options);

LoadRun run_load(boost::asio::io_context& io, HttpClient& client, const RunOptions& options, Workload workload,
                 const std::function<void(const Progress&)>& on_progress, std::stop_token stop);

}  // namespace godwit::load
