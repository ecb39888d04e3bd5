// What a load generator asks for, and when: drawn from distributions by a seed, or read from a trace. No socket and no
// clock in here: the same options give the same requests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/status.h>

namespace godwit::load {

struct Request {
  double arrival_seconds = 0;  // after the start; in a closed loop nobody asks
  int prompt_tokens = 1;       // in all
  int output_tokens = 1;
  int prefix_tokens = 0;  // of the prompt, shared with all requests of the same prefix
  uint64_t prefix = 0;
};

// Numbers the same on every machine, which the standard's distributions do not promise.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  double unit();  // in [0, 1)
  double exponential(double rate);
  double normal();
  uint64_t below(uint64_t count);

 private:
  std::mt19937_64 engine_;
};

// "128", "uniform:16,512" or "lognormal:MEDIAN,SIGMA,MOST": a number of tokens.
class Lengths {
 public:
  static Result<Lengths> parse(std::string_view text);
  int draw(Draw& from) const;

 private:
  enum class Kind { kUniform, kLognormal };
  Kind kind_ = Kind::kUniform;
  double low_ = 1, high_ = 1;  // uniform: both ends; lognormal: 1 and the most
  double median_ = 1, sigma_ = 0;
};

struct WorkloadOptions {
  double rate = 0;  // arrivals per second, Poisson; 0: all at once
  Lengths prompt, output;
  int prefixes = 0;       // how many there are, 0: none; each request has one of them
  int prefix_tokens = 0;  // on top of the prompt's own
  uint64_t seed = 1;
  int64_t requests = std::numeric_limits<int64_t>::max();  // at most
};

class Workload {
 public:
  explicit Workload(const WorkloadOptions& options);
  explicit Workload(std::vector<Request> trace) : trace_(std::move(trace)), from_trace_(true), draw_(0) {}

  std::optional<Request> next();  // in order of arrival
  int64_t size() const;           // requests it will give; the greatest number where nothing but time ends it

 private:
  std::vector<Request> trace_;
  bool from_trace_ = false;
  WorkloadOptions options_;
  Draw draw_;
  int64_t given_ = 0;
  double now_ = 0;
};

// One JSON object a line: "arrival" (seconds, never falling), "prompt_tokens", "output_tokens"; and "prefix" (a number
// or a text), "prefix_tokens" for what requests of the same prefix begin with. `label` is what errors call the text.
Result<std::vector<Request>> parse_trace(std::string_view text, const std::string& label);

// Prompts of a wanted length in words, since only the server has the tokenizer: how many tokens a word and an empty
// prompt cost is measured beforehand. Requests of one prefix begin with the same words; nothing else is shared.
struct PromptMaker {
  uint64_t seed = 1;
  double tokens_per_word = 1, tokens_around = 0;

  std::string make(const Request& request, uint64_t index) const;
  static std::string words(uint64_t seed, int64_t count);
};

}  // namespace godwit::load
