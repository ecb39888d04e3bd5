// How fast an engine reads a prompt and generates: the questions of llama-bench. Tokens are random but the same in
// every run; their values do not change the speed.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <godwit/engine.h>

namespace godwit {

// Either reads `prompt` tokens or generates `generated`, after `depth` tokens that are already in the cache.
struct SpeedTest {
  int prompt = 0, generated = 0, depth = 0;

  std::string name() const;  // "pp512", "tg64@d4096"
  int tokens() const { return prompt > 0 ? prompt : generated; }
  int64_t context_tokens() const;  // that the engine must hold
};

struct SpeedResult {
  std::vector<double> seconds;  // of each repetition
  // Tokens per second: of each repetition, their mean and their sample deviation (0 for one repetition).
  std::vector<double> samples;
  double mean = 0, deviation = 0;
  // Tokens per second of what was read to reach the depth, after a chunk to warm up; 0 where an earlier test had read
  // it.
  double to_depth = 0;
  // With EngineOptions::profile: seconds of all repetitions together.
  double matmul_seconds = 0, attention_seconds = 0;
  // The quickest repetition: the one that other programs disturbed least.
  struct Run {
    double seconds = 0, matmul_seconds = 0, attention_seconds = 0;
  };
  Run quickest;
};

struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(const std::vector<double>& samples);

// Runs tests on one engine. The tokens up to a depth are computed once and shared by all repetitions, and by the tests
// of greater depth that follow.
class SpeedMeter {
 public:
  explicit SpeedMeter(Engine engine) : engine_(std::move(engine)) {}

  // One step to warm up, then `repetitions` that count. Generating is what `godwit run` does, greedy sampling included.
  // `on_progress` gets the share of the test that is done.
  Result<SpeedResult> measure(const SpeedTest& test, int repetitions, const std::function<void(double)>& on_progress,
                              std::stop_token stop = {});

 private:
  using Run = SpeedResult::Run;
  Result<double> reach(int depth, std::stop_token stop);  // tokens per second
  Result<Run> run_prompt(int tokens, std::stop_token stop);
  Result<Run> run_generation(int tokens, std::stop_token stop);
  Run since(const EngineInfo& before, double seconds) const;

  Engine engine_;
  std::optional<Session> base_;  // at the depth of the last test
};

}  // namespace godwit
