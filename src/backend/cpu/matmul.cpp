// y[m, n] = dot(x[m, :], w[n, :]) for weights of any type in their file layout.
//
// Every output has exactly one vector accumulator that walks K in order, and one fixed reduction of its lanes; rows are
// zero-padded to whole vectors. An output's bits therefore depend on its row of x and its row of w alone (and on the
// SIMD target), not on the other rows, the tiling or the threads.
//
// x is packed once per call into tiles of up to kTileRows rows, [vector of K][row][lane]. Few rows of x read the
// weights directly, expanded in registers; for many rows, four weight rows at a time are expanded to fp32 in cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul.cpp"
#include <algorithm>
#include <vector>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/dequant_blocks-inl.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_problem.h"
#include "backend/cpu/matmul_tile-inl.h"
#include "tensor/quant.h"

#ifndef GODWIT_BACKEND_CPU_MATMUL_ONCE
#define GODWIT_BACKEND_CPU_MATMUL_ONCE
namespace godwit::cpu {

// A range of one job's outputs for one thread.
struct MatmulTask {
  const MatmulJob* job;
  int64_t col_begin, col_end;  // col_begin is a multiple of kTileCols
};

inline size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace godwit::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {
namespace {

// Values of K per call of the microkernel on expanded weights: four rows of them fit the first cache.
constexpr size_t kChunk = 1024;
// Up to this many rows of x per job, expanding weights in registers for each tile beats storing them.
constexpr int64_t kDirectRows = 2 * kTileRows;

class Matmul {
 public:
  Matmul(Context& context, const MatmulProblem& problem)
      : context_(context), problem_(problem), in_(static_cast<size_t>(problem.in)), padded_(round_up(in_, kLanes)) {}

  void run() {
    if (problem_.x.empty() || problem_.out == 0) return;
    pack_x();
    std::vector<MatmulTask> tasks = make_tasks();
    context_.pool.parallel_ranges(static_cast<int64_t>(tasks.size()),
                                  [&](int64_t i, int thread) { run_task(tasks[static_cast<size_t>(i)], thread); });
  }

 private:
  static int64_t rows_of(const MatmulJob& job) { return job.row_end - job.row_begin; }
  static int64_t tile_end(const MatmulJob& job, int64_t row) {
    return std::min(row + static_cast<int64_t>(kTileRows), job.row_end);
  }
  const float* packed_tile(int64_t row) const { return packed_x_ + static_cast<size_t>(row) * padded_; }
  const std::byte* weight_row(const MatmulJob& job, int64_t col) const {
    return job.weight + static_cast<size_t>(col) * problem_.weight_stride;
  }

  void pack_x() {
    packed_x_ = reinterpret_cast<float*>(context_.shared_scratch(problem_.x.size() * padded_ * sizeof(float)));
    std::vector<std::pair<int64_t, int64_t>> tiles;
    for (const MatmulJob& job : problem_.jobs)
      for (int64_t row = job.row_begin; row < job.row_end; row = tile_end(job, row))
        tiles.emplace_back(row, tile_end(job, row));
    auto pack = [&](int64_t i) {
      pack_tile(tiles[static_cast<size_t>(i)].first, tiles[static_cast<size_t>(i)].second);
    };
    constexpr size_t kParallelFloats = 64 * 1024;
    if (problem_.x.size() * padded_ >= kParallelFloats) {
      context_.pool.parallel_for(static_cast<int64_t>(tiles.size()), pack);
    } else {
      for (size_t i = 0; i < tiles.size(); ++i) pack(static_cast<int64_t>(i));
    }
  }

  void pack_tile(int64_t begin, int64_t end) {
    const FloatTag df;
    float* to = packed_x_ + static_cast<size_t>(begin) * padded_;
    const size_t stride = static_cast<size_t>(end - begin) * kLanes;
    for (int64_t row = begin; row < end; ++row, to += kLanes) {
      const float* from = problem_.x[static_cast<size_t>(row)];
      size_t k = 0;
      float* at = to;
      for (; k + kLanes <= in_; k += kLanes, at += stride) hn::Store(hn::LoadU(df, from + k), df, at);
      if (k < in_) hn::Store(F32Row(reinterpret_cast<const std::byte*>(from + k)).tail(0, in_ - k), df, at);
    }
  }

  bool direct(const MatmulJob& job) const {
    switch (problem_.dtype) {
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
      case DType::kQ8_0:
      case DType::kQ4_0:
        return rows_of(job) <= kDirectRows;
      default:
        return false;
    }
  }

  // Enough tasks to balance the threads, wide enough that reading x again for each does not matter.
  std::vector<MatmulTask> make_tasks() const {
    const auto threads = static_cast<size_t>(context_.pool.threads());
    const size_t all_cols = static_cast<size_t>(problem_.out) * problem_.jobs.size();
    size_t cols = 64;
    if (threads > 1) cols = std::min(cols, all_cols / (threads * 4));
    const auto step = static_cast<int64_t>(std::max(round_up(cols, kTileCols), kTileCols));
    std::vector<MatmulTask> tasks;
    for (const MatmulJob& job : problem_.jobs)
      for (int64_t col = 0; col < problem_.out; col += step)
        tasks.push_back({&job, col, std::min(col + step, problem_.out)});
    return tasks;
  }

  void run_task(const MatmulTask& task, int thread) {
    const bool few = direct(*task.job);
    switch (problem_.dtype) {
      case DType::kF32:
        return few ? run_direct<F32Row>(task) : run_expanded<F32Row>(task, thread);
      case DType::kF16:
        return few ? run_direct<F16Row>(task) : run_expanded<F16Row>(task, thread);
      case DType::kBF16:
        return few ? run_direct<BF16Row>(task) : run_expanded<BF16Row>(task, thread);
      case DType::kQ8_0:
        return few ? run_direct<Q8_0Row>(task) : run_expanded<Q8_0Row>(task, thread);
      case DType::kQ4_0:
        return few ? run_direct<Q4_0Row>(task) : run_expanded<Q4_0Row>(task, thread);
      case DType::kQ4_1:
        return run_expanded<Q4_1Row>(task, thread);
      case DType::kQ5_0:
        return run_expanded<Q5_0Row>(task, thread);
      case DType::kQ5_1:
        return run_expanded<Q5_1Row>(task, thread);
      case DType::kQ4_K:
        return run_expanded<Q4_KRow>(task, thread);
      case DType::kQ5_K:
        return run_expanded<Q5_KRow>(task, thread);
      case DType::kQ6_K:
        return run_expanded<Q6_KRow>(task, thread);
      case DType::kIQ4_NL:
        return run_expanded<IQ4_NLRow>(task, thread);
      case DType::kIQ4_XS:
        return run_expanded<IQ4_XSRow>(task, thread);
      case DType::kMXFP4:
        return run_expanded<MXFP4Row>(task, thread);
      default:
        return run_expanded<void>(task, thread);
    }
  }

  template <class Row>
  void run_direct(const MatmulTask& task) {
    for (int64_t col = task.col_begin; col < task.col_end; col += kTileCols) {
      Row w[kTileCols];
      for (size_t c = 0; c < kTileCols; ++c)  // columns past the end repeat the last one and are not stored
        w[c] = Row(weight_row(*task.job, std::min(col + static_cast<int64_t>(c), task.col_end - 1)));
      for (int64_t row = task.job->row_begin; row < task.job->row_end; row = tile_end(*task.job, row))
        finish(w, {packed_tile(row), in_, kTileCols * problem_.weight_stride}, row, tile_end(*task.job, row), col,
               task.col_end);
    }
  }

  // Blocks of rows of x, chunks of K: a chunk of the block's rows and its carried accumulators stay in the second cache
  // while tiles of four weight rows, expanded into the first, pass over them.
  template <class Row>
  void run_expanded(const MatmulTask& task, int thread) {
    constexpr size_t kBlockBytes = 768 * 1024;
    const size_t chunk = std::min(padded_, kChunk);
    const size_t block = std::max(kBlockBytes / (chunk * sizeof(float)) / kTileRows * kTileRows, kTileRows);
    const size_t cols = round_up(static_cast<size_t>(task.col_end - task.col_begin), kTileCols);
    const size_t carries = padded_ > chunk ? block * cols * kLanes : 0;
    Scratch scratch;
    scratch.tile =
        reinterpret_cast<float*>(context_.scratch(thread, ((kTileCols + 1) * chunk + carries) * sizeof(float)));
    scratch.spare = scratch.tile + kTileCols * chunk;
    scratch.carry = scratch.spare + chunk;
    for (int64_t row = task.job->row_begin; row < task.job->row_end; row += static_cast<int64_t>(block)) {
      const int64_t row_end = std::min(row + static_cast<int64_t>(block), task.job->row_end);
      for (size_t k = 0; k < padded_; k += chunk) run_chunk<Row>(task, row, row_end, k, scratch);
    }
  }

  struct Scratch {
    float* tile;   // [vector of K][kTileCols][lane]: a chunk of four weight rows
    float* spare;  // a chunk of one row
    float* carry;  // accumulators of a block, tile by tile
  };

  template <class Row>
  void run_chunk(const MatmulTask& task, int64_t row_begin, int64_t row_end, size_t k, const Scratch& scratch) {
    TileSpan span{};
    span.in = std::min(kChunk, padded_ - k);
    span.first = k == 0;
    span.last = k + span.in == padded_;
    span.carry = scratch.carry;
    const PackedRow w[kTileCols] = {PackedRow(scratch.tile), PackedRow(scratch.tile + kLanes),
                                    PackedRow(scratch.tile + 2 * kLanes), PackedRow(scratch.tile + 3 * kLanes)};
    for (int64_t col = task.col_begin; col < task.col_end; col += kTileCols) {
      for (size_t c = 0; c < kTileCols; ++c)
        expand<Row>(weight_row(*task.job, std::min(col + static_cast<int64_t>(c), task.col_end - 1)), k,
                    scratch.tile + c * kLanes, scratch.spare);
      for (int64_t row = row_begin; row < row_end;) {
        const int64_t end = tile_end(*task.job, row);
        const auto rows = static_cast<size_t>(end - row);
        span.x = packed_tile(row) + k * rows;
        finish(w, span, row, end, col, task.col_end);
        span.carry += rows * kTileCols * kLanes;
        row = end;
      }
    }
  }

  // A chunk of a weight row from value `k` on to every kTileCols-th vector of `to`. Row = void: a type without a reader
  // of its own here.
  template <class Row>
  void expand(const std::byte* weights, size_t k, float* to, [[maybe_unused]] float* spare) const {
    const size_t count = std::min(kChunk, in_ - k);
    if constexpr (std::is_void_v<Row>) {
      dequantize(problem_.dtype, weights + dtype_bytes(problem_.dtype, k), spare, count);
      expand_row(F32Row(reinterpret_cast<const std::byte*>(spare)), 0, count, to);
    } else {
      expand_row(Row(weights), k, count, to);
    }
  }

  template <class Row>
  void expand_row(const Row& row, size_t k, size_t count, float* to) const {
    const FloatTag df;
    constexpr size_t kStep = Row::kVecs * kLanes;
    static_assert(kChunk % kStep == 0);
    const size_t end = (k + count) / kStep;
    for (size_t step = k / kStep; step < end; ++step) {
      hwy::Prefetch(row.at(step) + kTileCols * problem_.weight_stride);
      const auto block = row.block(step);
#pragma GCC unroll 16
      for (size_t i = 0; i < Row::kVecs; ++i, to += kTileCols * kLanes) hn::Store(block.vec(i), df, to);
    }
    if (const size_t rest = count % kLanes; rest != 0) hn::Store(row.tail(end, rest), df, to);
  }

  // Runs the microkernel and, when K is through, writes its outputs.
  template <class Row>
  void finish(const Row* w, const TileSpan& span, int64_t row, int64_t row_end, int64_t col, int64_t col_end) {
    alignas(64) float sums[kTileRows * kTileCols];
    dot_rows(static_cast<size_t>(row_end - row), w, span, sums);
    if (!span.last) return;
    const int64_t end = std::min(col + static_cast<int64_t>(kTileCols), col_end);
    for (const float* from = sums; row < row_end; ++row, from += kTileCols) {
      float* y = problem_.y[static_cast<size_t>(row)];
      for (int64_t n = col; n < end; ++n) {
        float value = from[n - col];
        if (problem_.bias != nullptr) value += problem_.bias[n];
        y[n] = problem_.accumulate ? y[n] + value : value;
      }
    }
  }

  Context& context_;
  const MatmulProblem& problem_;
  const size_t in_, padded_;  // values per row, and rounded up to whole vectors
  float* packed_x_ = nullptr;
};

void matmul(Context& context, const MatmulArgs& args) {
  Matmul(context, matmul_problem(args)).run();
}

void expert_matmul(Context& context, const ExpertMatmulArgs& args) {
  Matmul(context, matmul_problem(args)).run();
}

}  // namespace

void fill_matmul(Kernels& table) {
  table.matmul = table.matmul_f32 = matmul;
  table.expert_matmul = table.expert_matmul_f32 = expert_matmul;
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {
HWY_EXPORT(fill_matmul);
void fill_matmul(Kernels& table, int64_t target) {
  GODWIT_DISPATCH(fill_matmul, target)(table);
}
}  // namespace godwit::cpu
#endif
