// A prompt of 256 tokens and 32 generated ones with 1, 2, half, all and twice as many threads as can run at once: more
// threads must not be slower. Of the built-in model, or the one that GODWIT_MODEL names.
//
//   ./dev bench --benchmark_filter=threads --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
//
// "threads" asks the engine, which takes no more threads than can run at once; "threads_as_given" forces the number on
// the back-end, to see what the pool does when threads must take turns.
#include <cstdlib>
#include <map>
#include <set>

#include <benchmark/benchmark.h>

#include "base/machine.h"
#include "engine/open.h"

namespace godwit {
namespace {

constexpr int kPrompt = 256, kGenerated = 32;

const Engine& engine_with(int threads, bool as_given) {
  static std::map<std::pair<int, bool>, Engine> engines;  // loading is no part of what is measured
  auto found = engines.find({threads, as_given});
  if (found == engines.end()) {
    EngineOptions options;
    if (const char* model = std::getenv("GODWIT_MODEL")) options.model = model;
    options.threads = threads;
    options.context_tokens = 2 * kPrompt;
    auto engine = Engine::open(options);
    if (as_given) engine = open_engine(options, *make_cpu_backend({.threads = threads, .simd = {}}));
    GODWIT_CHECK(engine.has_value(), "{}", engine.error().message);
    found = engines.emplace(std::pair(threads, as_given), *engine).first;
  }
  return found->second;
}

Session with_prompt(const Engine& engine) {
  Session session = engine.start();
  std::vector<TokenId> tokens;
  for (int i = 0; i < kPrompt; ++i) tokens.push_back(300 + i);
  GODWIT_CHECK(session.append(tokens).has_value());
  return session;
}

void rate(benchmark::State& state, int tokens) {
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * tokens, benchmark::Counter::kIsRate);
}

void prompt(benchmark::State& state, int threads, bool as_given) {
  const Engine& engine = engine_with(threads, as_given);
  for (auto _ : state) {
    Session session = with_prompt(engine);
    GODWIT_CHECK(session.prefill().has_value());
  }
  rate(state, kPrompt);
}

void generate(benchmark::State& state, int threads, bool as_given) {
  Session session = with_prompt(engine_with(threads, as_given));
  GODWIT_CHECK(session.prefill().has_value());
  GenerateOptions options;
  options.max_tokens = kGenerated;
  options.ignore_eos = true;
  for (auto _ : state) {
    Session fork = session.fork();
    GODWIT_CHECK(fork.generate(options).has_value());
  }
  rate(state, kGenerated);
}

const bool registered = [] {
  const int all = read_machine().usable();
  for (bool as_given : {false, true})
    for (int threads : std::set<int>{1, std::min(2, all), std::max(1, all / 2), all, 2 * all}) {
      const std::string name = fmt::format("threads{}:{}/", as_given ? "_as_given" : "", threads);
      benchmark::RegisterBenchmark((name + "prompt").c_str(), prompt, threads, as_given)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark((name + "generate").c_str(), generate, threads, as_given)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  return true;
}();

}  // namespace
}  // namespace godwit
