// Tokens per second of many answers at once: the built-in model, prompts of 8 tokens, answers of 128, greedy. The
// prefix benchmark asks about one text of 4,096 tokens again and again.
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include <benchmark/benchmark.h>

#include <godwit/service.h>

namespace godwit {
namespace {

Engine open_engine() {
  EngineOptions options;
  if (const char* model = std::getenv("GODWIT_MODEL")) options.model = model;
  if (const char* threads = std::getenv("GODWIT_THREADS")) options.threads = std::atoi(threads);
  options.context_tokens = 8192;
  auto engine = Engine::open(options);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    std::exit(1);
  }
  return *engine;
}

std::vector<TokenId> prompt(size_t count, uint32_t seed) {
  std::vector<TokenId> tokens;
  while (tokens.size() < count) {
    seed = seed * 1664525 + 1013904223;
    tokens.push_back(static_cast<TokenId>(300 + (seed >> 8) % 4000));
  }
  return tokens;
}

// Asks them all and waits for all; says how many tokens came.
int64_t answer_all(Service& service, const std::vector<std::vector<TokenId>>& prompts, int tokens) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t left = prompts.size();
  int64_t written = 0;
  for (const auto& one : prompts) {
    ServiceRequest request{.prompt = one, .options = {}, .principal = {}};
    request.options.max_tokens = tokens;
    request.options.ignore_eos = true;
    auto id = service.submit(std::move(request), {{}, [&](const ServiceAnswer& answer) {
                                                    std::lock_guard lock(mutex);
                                                    written += answer.completion_tokens;
                                                    --left;
                                                    changed.notify_all();
                                                  }});
    if (!id) std::exit(1);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  return written;
}

void service_streams(benchmark::State& state) {
  const Engine engine = open_engine();
  auto service = *Service::start(engine, {.most_running = 64, .prefix_cache = false});
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t i = 0; i < state.range(0); ++i) prompts.push_back(prompt(8, static_cast<uint32_t>(i)));
  int64_t tokens = 0;
  for (auto _ : state) tokens += answer_all(*service, prompts, 128);
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(service_streams)
    ->ArgName("streams")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Arg(32)
    ->Arg(64)
    ->MeasureProcessCPUTime()  // of all threads: on a busy machine, the steadier of the two
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void service_prefix(benchmark::State& state) {
  const Engine engine = open_engine();
  auto service = *Service::start(engine, {.prefix_cache = state.range(0) != 0});
  const auto text = prompt(4096, 1);
  answer_all(*service, {text}, 1);
  for (auto _ : state) answer_all(*service, {text}, 1);
}
BENCHMARK(service_prefix)->ArgName("cache")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace godwit
