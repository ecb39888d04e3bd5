// y[m, n] = dot(x[m, :], w[n, :]) for weights of any type in their file layout.
//
// Every output has exactly one vector accumulator that walks K in order, and one fixed reduction of its lanes; rows are
// zero-padded to whole vectors. An output's bits therefore depend on its row of x and its row of w alone (and on the
// SIMD target), not on the other rows, the tiling or the threads.
//
// x is packed once per call into tiles of up to kTileRows rows, [vector of K][row][lane]. Few rows of x read the
// weights directly, expanded in registers; many rows share a panel of weight rows that was expanded to fp32 in cache,
// packed as [vector of K][4 rows][lane].
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul.cpp"
#include <algorithm>
#include <vector>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/dequant_blocks-inl.h"
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

// Up to this many rows of x per job, expanding the weights anew for each tile beats writing them to a panel.
constexpr int64_t kDirectRows = 2 * kTileRows;

class Matmul {
 public:
  Matmul(Context& context, const MatmulProblem& problem)
      : context_(context), problem_(problem), in_(static_cast<size_t>(problem.in)), padded_(round_up(in_, kLanes)) {}

  void run() {
    if (problem_.x.empty() || problem_.out == 0) return;
    pack_x();
    std::vector<MatmulTask> tasks = make_tasks();
    context_.pool.parallel_for(static_cast<int64_t>(tasks.size()),
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

  // Panels that fit half of a 2 MB cache, and enough of them to balance the threads.
  std::vector<MatmulTask> make_tasks() const {
    constexpr size_t kPanelBytes = 768 * 1024;
    const auto threads = static_cast<size_t>(context_.pool.threads());
    const size_t all_cols = static_cast<size_t>(problem_.out) * problem_.jobs.size();
    size_t cols = std::min<size_t>(64, kPanelBytes / (padded_ * sizeof(float) + 1));
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
        return few ? run_direct<F32Row>(task) : run_panel<F32Row>(task, thread);
      case DType::kF16:
        return few ? run_direct<F16Row>(task) : run_panel<F16Row>(task, thread);
      case DType::kBF16:
        return few ? run_direct<BF16Row>(task) : run_panel<BF16Row>(task, thread);
      case DType::kQ8_0:
        return few ? run_direct<Q8_0Row>(task) : run_panel<Q8_0Row>(task, thread);
      case DType::kQ4_0:
        return few ? run_direct<Q4_0Row>(task) : run_panel<Q4_0Row>(task, thread);
      case DType::kQ4_1:
        return run_panel<Q4_1Row>(task, thread);
      case DType::kQ5_0:
        return run_panel<Q5_0Row>(task, thread);
      case DType::kQ5_1:
        return run_panel<Q5_1Row>(task, thread);
      case DType::kQ4_K:
        return run_panel<Q4_KRow>(task, thread);
      case DType::kQ5_K:
        return run_panel<Q5_KRow>(task, thread);
      case DType::kQ6_K:
        return run_panel<Q6_KRow>(task, thread);
      case DType::kIQ4_NL:
        return run_panel<IQ4_NLRow>(task, thread);
      case DType::kIQ4_XS:
        return run_panel<IQ4_XSRow>(task, thread);
      case DType::kMXFP4:
        return run_panel<MXFP4Row>(task, thread);
      default:
        return run_panel<void>(task, thread);
    }
  }

  template <class Row>
  void run_direct(const MatmulTask& task) {
    for (int64_t col = task.col_begin; col < task.col_end; col += kTileCols) {
      Row w[kTileCols];
      for (size_t c = 0; c < kTileCols; ++c)  // columns past the end repeat the last one and are not stored
        w[c] = Row(weight_row(*task.job, std::min(col + static_cast<int64_t>(c), task.col_end - 1)));
      for (int64_t row = task.job->row_begin; row < task.job->row_end; row = tile_end(*task.job, row))
        finish(w, in_, row, tile_end(*task.job, row), col, task.col_end);
    }
  }

  template <class Row>
  void run_panel(const MatmulTask& task, int thread) {
    // The rows of x that stay in cache while tiles of weights pass over them. Where that is all of them, a panel need
    // hold no more than one tile.
    constexpr size_t kBlockBytes = 768 * 1024;
    const auto block = static_cast<int64_t>(
        std::max<size_t>(kBlockBytes / (padded_ * sizeof(float)) / kTileRows * kTileRows, kTileRows));
    const auto most = static_cast<int64_t>(
        rows_of(*task.job) <= block ? kTileCols
                                    : round_up(static_cast<size_t>(task.col_end - task.col_begin), kTileCols));
    auto* panel =
        reinterpret_cast<float*>(context_.scratch(thread, static_cast<size_t>(most + 1) * padded_ * sizeof(float)));
    float* spare = panel + static_cast<size_t>(most) * padded_;
    for (int64_t first = task.col_begin; first < task.col_end; first += most) {
      const int64_t last = std::min(first + most, task.col_end);
      const auto tile_of = [&](int64_t col) { return panel + static_cast<size_t>(col - first) * padded_; };
      for (int64_t col = first; col < last; col += kTileCols)
        expand_tile<Row>(*task.job, col, last, tile_of(col), spare);
      for (int64_t begin = task.job->row_begin; begin < task.job->row_end; begin += block) {
        const int64_t end = std::min(begin + block, task.job->row_end);
        for (int64_t col = first; col < last; col += kTileCols) {
          const float* tile = tile_of(col);
          const PackedRow w[kTileCols] = {PackedRow(tile), PackedRow(tile + kLanes), PackedRow(tile + 2 * kLanes),
                                          PackedRow(tile + 3 * kLanes)};
          for (int64_t row = begin; row < end; row = tile_end(*task.job, row))
            finish(w, padded_, row, tile_end(*task.job, row), col, last);
        }
      }
    }
  }

  // Four weight rows to [vector of K][4][lane]; `spare` holds one row of padded_ floats. Row = void: any type.
  template <class Row>
  void expand_tile(const MatmulJob& job, int64_t col, int64_t col_end, float* to, [[maybe_unused]] float* spare) const {
    for (size_t c = 0; c < kTileCols; ++c) {
      const std::byte* from = weight_row(job, std::min(col + static_cast<int64_t>(c), col_end - 1));
      if constexpr (std::is_void_v<Row>) {
        dequantize(problem_.dtype, from, spare, in_);
        expand_row(F32Row(reinterpret_cast<const std::byte*>(spare)), to + c * kLanes);
      } else {
        expand_row(Row(from), to + c * kLanes);
      }
    }
  }

  template <class Row>
  void expand_row(const Row& row, float* to) const {
    const FloatTag df;
    const size_t steps = in_ / (Row::kVecs * kLanes);
    for (size_t step = 0; step < steps; ++step) {
      hwy::Prefetch(row.at(step) + kTileCols * problem_.weight_stride);
      const auto block = row.block(step);
#pragma GCC unroll 16
      for (size_t i = 0; i < Row::kVecs; ++i, to += kTileCols * kLanes) hn::Store(block.vec(i), df, to);
    }
    if (const size_t rest = in_ % kLanes; rest != 0) hn::Store(row.tail(steps, rest), df, to);
  }

  template <class Row>
  void finish(const Row* w, size_t in, int64_t row, int64_t row_end, int64_t col, int64_t col_end) {
    alignas(64) float sums[kTileRows * kTileCols];
    dot_rows(static_cast<size_t>(row_end - row), w, packed_tile(row), in, kTileCols * problem_.weight_stride, sums);
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
  table.matmul = matmul;
  table.expert_matmul = expert_matmul;
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {
HWY_EXPORT(fill_matmul);
void fill_matmul(Kernels& table) {
  HWY_DYNAMIC_DISPATCH(fill_matmul)(table);
}
}  // namespace godwit::cpu
#endif
