#include "eval/speed.h"

#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "base/result.h"

namespace godwit {
namespace {

std::vector<TokenId> random_tokens(size_t count, int vocab_size) {
  std::mt19937 generator(1);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(generator() % static_cast<uint32_t>(vocab_size));
  return tokens;
}

}  // namespace

std::string SpeedTest::name() const {
  const std::string what = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generated);
  return depth > 0 ? fmt::format("{}@d{}", what, depth) : what;
}

int64_t SpeedTest::context_tokens() const {
  // A generation begins after at least one token, and ends with one that is sampled and never computed.
  return prompt > 0 ? int64_t{depth} + prompt : std::max(int64_t{depth}, int64_t{1}) + generated + 1;
}

Spread spread_of(const std::vector<double>& samples) {
  Spread spread;
  if (samples.empty()) return spread;
  const auto n = static_cast<double>(samples.size());
  spread.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (double sample : samples) squares += (sample - spread.mean) * (sample - spread.mean);
  if (samples.size() > 1) spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

Result<SpeedResult> SpeedMeter::measure(const SpeedTest& test, int repetitions,
                                        const std::function<void(double)>& on_progress, std::stop_token stop) {
  SpeedResult result;
  GODWIT_ASSIGN(result.to_depth, reach(test.depth, stop));
  // One step of its kind warms a test up: a token of a generation, a chunk of a prompt.
  auto once = [&](bool warm_up) {
    if (test.prompt == 0) return run_generation(warm_up ? 1 : test.generated, stop);
    return run_prompt(warm_up ? std::min(test.prompt, engine_.info().prefill_chunk) : test.prompt, stop);
  };
  GODWIT_TRY(once(true));
  for (int i = 0; i < repetitions; ++i) {
    if (on_progress) on_progress(static_cast<double>(i) / repetitions);
    GODWIT_ASSIGN(Run run, once(false));
    result.seconds.push_back(run.seconds);
    result.samples.push_back(test.tokens() / run.seconds);
    result.matmul_seconds += run.matmul_seconds;
    result.attention_seconds += run.attention_seconds;
    if (i == 0 || run.seconds < result.quickest.seconds) result.quickest = run;
  }
  const Spread spread = spread_of(result.samples);
  result.mean = spread.mean;
  result.deviation = spread.deviation;
  return result;
}

Result<double> SpeedMeter::reach(int depth, std::stop_token stop) {
  if (!base_) {
    base_ = engine_.start();
    if (depth > 0) GODWIT_TRY(run_prompt(std::min(depth, engine_.info().prefill_chunk), stop));
  }
  const auto wanted = static_cast<size_t>(depth);
  base_->truncate(wanted);
  const size_t missing = wanted - base_->tokens().size();
  const std::vector<TokenId> tokens = random_tokens(wanted, engine_.info().vocab_size);
  GODWIT_TRY(base_->append(std::span(tokens).last(missing)));
  const auto start = std::chrono::steady_clock::now();
  GODWIT_TRY(base_->prefill({}, std::move(stop)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return missing > 0 ? static_cast<double>(missing) / seconds : 0.0;
}

SpeedMeter::Run SpeedMeter::since(const EngineInfo& before, double seconds) const {
  const EngineInfo now = engine_.info();
  return {seconds, now.matmul_seconds - before.matmul_seconds, now.attention_seconds - before.attention_seconds};
}

Result<SpeedMeter::Run> SpeedMeter::run_prompt(int tokens, std::stop_token stop) {
  Session session = base_->fork();
  const EngineInfo before = engine_.info();
  GODWIT_TRY(session.append(random_tokens(static_cast<size_t>(tokens), before.vocab_size)));
  const auto start = std::chrono::steady_clock::now();
  GODWIT_TRY(session.prefill({}, std::move(stop)));
  return since(before, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

Result<SpeedMeter::Run> SpeedMeter::run_generation(int tokens, std::stop_token stop) {
  Session session = base_->fork();
  if (session.tokens().empty()) GODWIT_TRY(session.append(random_tokens(1, engine_.info().vocab_size)));
  GODWIT_TRY(session.prefill({}, stop));
  const EngineInfo before = engine_.info();
  // The first sampled token needs no step, so one more is sampled than there are steps.
  GenerateOptions options;
  options.max_tokens = tokens + 1;
  options.ignore_eos = true;
  GODWIT_ASSIGN(Generation answer, session.generate(options, {}, {}, std::move(stop)));
  if (answer.finish == FinishReason::kCancelled)
    return errorf(ErrorCode::kCancelled, "interrupted after {} of {} tokens", answer.tokens.size(), tokens);
  if (answer.finish == FinishReason::kKvExhausted)
    return errorf(ErrorCode::kExhausted, "the KV memory is full after {} of {} tokens; raise --kv-memory or lower -d",
                  answer.tokens.size(), tokens);
  return since(before, answer.decode_seconds);
}

}  // namespace godwit
