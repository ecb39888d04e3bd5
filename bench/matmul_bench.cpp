// Speed of the CPU's matmul: shapes of a 1 to 8 billion parameter model, weight types, and rows per call.
//
//   ./dev bench --benchmark_filter='limit|matmul/q8_0'
//
// Counters: FLOP/s, and bytes/s of weights. Weights rotate through more memory than the caches hold, as in a model.
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench_backend.h"
#include "tensor/quant.h"

namespace godwit {
namespace {

Backend& backend() {
  return bench_backend();
}

Tensor upload(Buffer& memory, DType dtype, int64_t rows, int64_t columns, size_t copies) {
  const Tensor shape(nullptr, dtype, {rows, columns});
  memory = *backend().allocate(shape.bytes() * copies);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<size_t>(columns));
  for (float& value : row) value = normal(generator);
  std::vector<std::byte> bytes(shape.row_stride_bytes);
  quantize(dtype, row.data(), bytes.data(), row.size());
  for (size_t i = 0; i < static_cast<size_t>(rows) * copies; ++i)
    backend().upload(memory.data() + i * bytes.size(), bytes);
  return Tensor(memory.data(), dtype, {rows, columns});
}

void matmul(benchmark::State& state, DType dtype, int64_t out, int64_t in, int64_t rows) {
  constexpr size_t kMoreThanCache = size_t{512} << 20;
  const size_t weight_bytes = Tensor(nullptr, dtype, {out, in}).bytes();
  const size_t copies = rows > 32 ? 1 : 1 + kMoreThanCache / weight_bytes;
  Buffer x, w, y;
  MatmulArgs args;
  args.x = upload(x, DType::kF32, rows, in, 1);
  args.w = upload(w, dtype, out, in, copies);
  args.y = upload(y, DType::kF32, rows, out, 1);
  args.phase = rows > 32 ? Phase::kPrefill : Phase::kDecode;
  size_t turn = 0;
  for (auto _ : state) {
    args.w.data = w.data() + turn++ % copies * weight_bytes;
    backend().matmul(args);
  }
  const auto calls = static_cast<double>(state.iterations());
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(rows * out * in) * calls, benchmark::Counter::kIsRate);
  state.counters["weights"] = benchmark::Counter(static_cast<double>(weight_bytes) * calls, benchmark::Counter::kIsRate,
                                                 benchmark::Counter::OneK::kIs1000);
}

const bool registered = [] {
  const std::pair<int64_t, int64_t> shapes[] = {{8192, 2048}, {2048, 8192}, {512, 2048}};
  for (const DTypeInfo& info : all_dtypes())
    for (const auto& [out, in] : shapes)
      for (int64_t rows : {1, 2, 4, 8, 32, 512}) {
        if (info.dtype == DType::kI32) continue;
        const std::string name = fmt::format("matmul/{}/{}x{}/rows:{}", info.name, out, in, rows);
        benchmark::RegisterBenchmark(name.c_str(), matmul, info.dtype, out, in, rows)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
  return true;
}();

}  // namespace
}  // namespace godwit
