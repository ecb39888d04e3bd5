// Speed of attention over pages: 8 query heads on 2 KV heads, a chunk of a prompt or one token after `context` tokens.
//
// Counters: FLOP/s counts 4 * dim per visible (query, key) pair; bytes/s counts the K and V read once.
#include <random>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench_backend.h"

namespace godwit {
namespace {

constexpr int kHeads = 8, kKvHeads = 2;

struct Problem {
  Buffer slab, q, out, lse, positions;
  AttentionPlan plan;
  AttentionArgs args;
};

void fill(Problem& p, const KvFormat& format, int64_t context, int64_t rows) {
  Backend& be = bench_backend();
  const auto pages = static_cast<size_t>((context + format.page_tokens - 1) / format.page_tokens);
  p.slab = *be.allocate(pages * kKvHeads * format.page_bytes());
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> kv(static_cast<size_t>(format.page_tokens) * kKvHeads * static_cast<size_t>(format.head_dim));
  for (float& value : kv) value = normal(generator);
  Buffer k = *be.allocate(kv.size() * sizeof(float));
  be.upload(k.data(), std::as_bytes(std::span(kv)));
  const Tensor block(k.data(), DType::kF32, {format.page_tokens, kKvHeads, format.head_dim});
  for (size_t page = 0; page < pages; ++page) {
    std::vector<KvSlot> slots;
    for (uint32_t slot = 0; slot < static_cast<uint32_t>(format.page_tokens); ++slot)
      for (uint32_t head = 0; head < kKvHeads; ++head)
        slots.push_back({static_cast<PageId>(head * pages + page), slot});
    be.kv_write({.format = format, .slab = p.slab.data(), .slots = slots, .k = block, .v = block});
  }
  for (int32_t head = 0; head < kKvHeads; ++head) {
    const auto begin = static_cast<uint32_t>(p.plan.pages.size());
    for (uint32_t page = 0; page < pages; ++page)
      p.plan.pages.push_back({static_cast<PageId>(static_cast<size_t>(head) * pages + page), page,
                              static_cast<int32_t>(page) * format.page_tokens,
                              static_cast<uint32_t>(format.page_tokens)});
    p.plan.tiles.push_back({0, static_cast<int32_t>(rows), head, begin, static_cast<uint32_t>(p.plan.pages.size())});
  }
  std::vector<float> queries(static_cast<size_t>(rows) * kHeads * static_cast<size_t>(format.head_dim));
  for (float& value : queries) value = normal(generator);
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < rows; ++i) positions.push_back(static_cast<int32_t>(context - rows + i));
  p.q = *be.allocate(queries.size() * sizeof(float));
  p.out = *be.allocate(queries.size() * sizeof(float));
  p.lse = *be.allocate(static_cast<size_t>(rows) * kHeads * sizeof(float));
  p.positions = *be.allocate(positions.size() * sizeof(int32_t));
  be.upload(p.q.data(), std::as_bytes(std::span(queries)));
  be.upload(p.positions.data(), std::as_bytes(std::span(positions)));
  p.args.format = format;
  p.args.slab = p.slab.data();
  p.args.plan = &p.plan;
  p.args.q = Tensor(p.q.data(), DType::kF32, {rows, kHeads, format.head_dim});
  p.args.positions = Tensor(p.positions.data(), DType::kI32, {rows});
  p.args.kv_heads = kKvHeads;
  p.args.scale = 0.1F;
  p.args.partial = {Tensor(p.out.data(), DType::kF32, {rows, kHeads, format.head_dim}),
                    Tensor(p.lse.data(), DType::kF32, {rows, kHeads})};
}

void attention(benchmark::State& state, const KvFormat& format, int64_t context, int64_t rows) {
  Problem p;
  fill(p, format, context, rows);
  for (auto _ : state) bench_backend().attention(p.args);
  const auto calls = static_cast<double>(state.iterations());
  const double pairs = static_cast<double>(rows) * static_cast<double>(context) -
                       0.5 * static_cast<double>(rows) * static_cast<double>(rows - 1);
  state.counters["FLOP/s"] =
      benchmark::Counter(4.0 * format.head_dim * kHeads * pairs * calls, benchmark::Counter::kIsRate);
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(p.slab.bytes) * calls, benchmark::Counter::kIsRate);
}

// Context and rows; the longest is larger than the caches of most machines.
constexpr std::pair<int64_t, int64_t> kCases[] = {{8192, 1}, {32768, 1}, {131072, 1}, {8192, 512}, {32768, 512}};

struct Stored {
  const char* name;
  DType dtype;
  int k_bits, v_bits;
};
constexpr Stored kStored[] = {{"f32", DType::kF32, 0, 0}, {"f16", DType::kF16, 0, 0},  {"bf16", DType::kBF16, 0, 0},
                              {"q8", DType::kF16, 8, 8},  {"q4k8", DType::kF16, 8, 4}, {"q4", DType::kF16, 4, 4}};

const bool registered = [] {
  for (const Stored& stored : kStored)
    for (int head_dim : {64, 128})
      for (const auto& [context, rows] : kCases)
        benchmark::RegisterBenchmark(
            fmt::format("attention/{}/dim:{}/context:{}/rows:{}", stored.name, head_dim, context, rows).c_str(),
            attention,
            KvFormat{.dtype = stored.dtype, .head_dim = head_dim, .k_bits = stored.k_bits, .v_bits = stored.v_bits},
            context, rows)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
  return true;
}();

}  // namespace
}  // namespace godwit
