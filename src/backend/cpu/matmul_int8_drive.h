// The loops around the kernels of int8_dot.h: x is rounded to 8 bits once for all products of a group, weight rows make
// tasks, and each task's weights meet all rows of x.
#pragma once

#include <algorithm>
#include <cstring>

#include "backend/cpu/features.h"
#include "backend/cpu/int8_dot.h"
#include "backend/cpu/matmul_problem.h"
#include "backend/cpu/strips.h"

namespace godwit::cpu {

// From this many rows of x on, copying weights into panels costs less than it saves: rows, and strips.
constexpr size_t kPanelsFrom = 12, kStripPanelsFrom = 48;
// So that tiles of nearly equal size have as many rows of x as there are kernels for.
static_assert(kPanelsFrom / ((kPanelsFrom + kPanelRowsOfX) / kPanelRowsOfX) >= kPanelLeastRowsOfX);
// Weights of a task, at most: x of many rows passes by them while they are in the second cache, as panels or as they
// lie; a few rows of x need no more than what balances the threads.
constexpr size_t kTaskRows = 128, kTaskPanelBytes = 640 * 1024;
constexpr size_t kLyingTaskRows = 64, kFewTaskBytes = 96 * 1024;

struct Task {
  std::span<const MatmulProblem> products;
  size_t job;
  size_t begin, end;  // weight rows
};

// A Set has the kernels of a target: type(DType) (int8_dot.h), Outputs, where sums go, and fetch(), whether lines of
// strips are asked for ahead of time.
template <class Set>
class Int8Matmul {
 public:
  Int8Matmul(Context& context, const MatmulGroup& group)
      : context_(context),
        group_(group),
        first_(group.products.front()),
        in_(static_cast<size_t>(first_.in)),
        units_((in_ + kUnitValues - 1) / kUnitValues) {}

  void run() {
    if (first_.x.empty()) return;
    quantize();
    const std::vector<Task> tasks = make_tasks();
    context_.pool.parallel_ranges(static_cast<int64_t>(tasks.size()), [&](int64_t i, int thread) {
      const Task& task = tasks[static_cast<size_t>(i)];
      for (const MatmulProblem& problem : task.products) {
        const Product product{problem, Set::type(problem.dtype), problem.jobs[task.job], task.begin, task.end, in_};
        if (in_panels(problem, product.job)) {
          run_panels(product, thread);
        } else if (problem.packed) {
          run_strips(product, product.weights(task.begin, kStripRows).first);
        } else if (product.type.rows == nullptr) {
          run_strips(product, make_strips(product, thread));
        } else {
          run_rows(product);
        }
      }
    });
  }

 private:
  struct Product {
    const MatmulProblem& problem;
    const Int8Type& type;
    const MatmulJob& job;
    size_t begin, end;  // weight rows
    size_t in;

    Int8Weights weights(size_t row, size_t most) const {
      return {job.weight + row * problem.weight_stride, problem.weight_stride, std::min(most, end - row), in};
    }
  };

  void quantize() {
    const size_t rows = first_.x.size();
    const XLayout& layout = Set::type(first_.dtype).x;
    x_ = reinterpret_cast<XUnit*>(context_.shared_scratch(rows * units_ * sizeof(XUnit)));
    const auto one = [&](int64_t row) {
      quantize_x(first_.x[static_cast<size_t>(row)], in_, layout, x_ + static_cast<size_t>(row) * units_);
    };
    constexpr size_t kParallelValues = 32 * 1024;
    if (rows > 1 && rows * in_ >= kParallelValues) {
      context_.pool.parallel_for(static_cast<int64_t>(rows), one);
    } else {
      for (size_t row = 0; row < rows; ++row) one(static_cast<int64_t>(row));
    }
  }

  static size_t rows_of(const MatmulJob& job) { return static_cast<size_t>(job.row_end - job.row_begin); }
  static bool in_panels(const MatmulProblem& problem, const MatmulJob& job) {
    return Set::type(problem.dtype).rows != nullptr &&
           rows_of(job) >= (problem.packed ? kStripPanelsFrom : kPanelsFrom);
  }
  size_t panel_bytes(const Int8Type& type) const { return units_ * type.rows->panel_unit_bytes; }

  std::vector<Task> make_tasks() const {
    const auto threads = static_cast<size_t>(context_.pool.threads());
    size_t share = kTaskRows;  // enough tasks to balance the threads
    if (threads > 1) share = std::min(share, group_.outputs() * first_.jobs.size() / (threads * 4));
    std::vector<Task> tasks;
    group_.for_units([&](std::span<const MatmulProblem> products) {
      const auto out = static_cast<size_t>(products.front().out);
      for (size_t job = 0; job < first_.jobs.size(); ++job) {
        const auto [step, most] = task_rows(products, job);
        const size_t rows = std::max(std::min(share, most) / step * step, step);
        for (size_t row = 0; row < out; row += rows) tasks.push_back({products, job, row, std::min(row + rows, out)});
      }
    });
    return tasks;
  }

  // Weight rows of a task: multiples of `step`, at most `most`.
  struct TaskRows {
    size_t step, most;
  };
  TaskRows task_rows(std::span<const MatmulProblem> products, size_t job) const {
    size_t panel = 0;
    bool strips = false;
    for (const MatmulProblem& each : products) {
      panel = std::max(panel, task_panel_bytes(each, job));
      strips = strips || each.packed || Set::type(each.dtype).rows == nullptr;
    }
    if (panel > 0) return {kPanelWeightRows, std::min(kTaskRows, kTaskPanelBytes / panel * kPanelWeightRows)};
    const size_t step = strips ? kStripRows : kDotWeightRows;
    if (rows_of(first_.jobs[job]) >= kPanelsFrom) return {step, kLyingTaskRows};
    return {step, std::min(kLyingTaskRows, kFewTaskBytes / products.front().weight_stride)};
  }

  // Of a panel; 0: the job needs none.
  size_t task_panel_bytes(const MatmulProblem& problem, size_t job) const {
    return in_panels(problem, problem.jobs[job]) ? panel_bytes(Set::type(problem.dtype)) : 0;
  }

  void run_rows(const Product& product) const {
    float sums[kDotRowsOfX * kTaskRows];
    const auto end = static_cast<size_t>(product.job.row_end);
    for (size_t x_row = static_cast<size_t>(product.job.row_begin); x_row < end; x_row += kDotRowsOfX) {
      const size_t x_rows = std::min(kDotRowsOfX, end - x_row);
      for (size_t row = product.begin; row < product.end; row += kDotWeightRows)
        product.type.rows->dot[x_rows - 1](product.weights(row, kDotWeightRows), x_ + x_row * units_, units_,
                                           sums + (row - product.begin), kTaskRows);
      typename Set::Outputs{product.problem, x_row, x_rows}.write(sums, kTaskRows, product.begin,
                                                                  product.end - product.begin);
    }
  }

  // multiply(rows of x, how many, sums) for tiles of x of at most kMost rows, all of nearly the same size.
  template <size_t kMost, class Multiply>
  void each_tile(const Product& product, Multiply&& multiply) const {
    float sums[kMost * kTaskRows];
    const auto begin = static_cast<size_t>(product.job.row_begin), end = static_cast<size_t>(product.job.row_end);
    const size_t tiles = (end - begin + kMost - 1) / kMost;
    for (size_t tile = 0; tile < tiles; ++tile) {
      const size_t x_row = begin + tile * (end - begin) / tiles;
      const size_t x_rows = begin + (tile + 1) * (end - begin) / tiles - x_row;
      multiply(x_ + x_row * units_, x_rows, sums);
      typename Set::Outputs{product.problem, x_row, x_rows}.write(sums, kTaskRows, product.begin,
                                                                  product.end - product.begin);
    }
  }

  void run_strips(const Product& product, const std::byte* strips) const {
    const size_t strip_bytes = kStripRows * dtype_bytes(product.problem.dtype, units_ * kUnitValues);
    each_tile<kStripRowsOfX>(product, [&](const XUnit* x, size_t x_rows, float* sums) {
      const std::byte* strip = strips;
      for (size_t row = product.begin; row < product.end; row += kStripRows, strip += strip_bytes)
        product.type.strips[x_rows - 1](strip, x, units_, Set::fetch(), sums + (row - product.begin), kTaskRows);
    });
  }

  // Strips of a task's rows. Rows and values that are not there are zeros.
  const std::byte* make_strips(const Product& product, int thread) const {
    const DType dtype = product.problem.dtype;
    const StripCopies& copies = strip_copies(dtype);
    const size_t row_bytes = dtype_bytes(dtype, in_), whole_bytes = dtype_bytes(dtype, units_ * kUnitValues);
    const size_t strip_bytes = kStripRows * whole_bytes;
    const size_t strips = (product.end - product.begin + kStripRows - 1) / kStripRows;
    std::byte* to = context_.scratch(thread, (strips + 1) * strip_bytes);
    std::byte* padded = to + strips * strip_bytes;
    for (size_t i = 0; i < strips; ++i) {
      const Int8Weights weights = product.weights(product.begin + i * kStripRows, kStripRows);
      if (weights.rows == kStripRows && row_bytes == whole_bytes) {
        copies.pack(weights.first, weights.stride, units_, to + i * strip_bytes);
        continue;
      }
      std::memset(padded, 0, strip_bytes);
      for (size_t row = 0; row < weights.rows; ++row)
        std::memcpy(padded + row * whole_bytes, weights.first + row * weights.stride, row_bytes);
      copies.pack(padded, whole_bytes, units_, to + i * strip_bytes);
    }
    return to;
  }

  void run_panels(const Product& product, int thread) const {
    const RowDots& dots = *product.type.rows;
    const size_t bytes = panel_bytes(product.type);
    const size_t panels = (product.end - product.begin + kPanelWeightRows - 1) / kPanelWeightRows;
    std::byte* memory = context_.scratch(thread, panels * bytes);
    for (size_t i = 0; i < panels; ++i) {
      const Int8Weights weights = product.weights(product.begin + i * kPanelWeightRows, kPanelWeightRows);
      if (product.problem.packed) {
        dots.fill_strips(weights.first, (weights.rows + kStripRows - 1) / kStripRows, units_, memory + i * bytes);
      } else {
        dots.fill(weights, units_, memory + i * bytes);
      }
    }
    each_tile<kPanelRowsOfX>(product, [&](const XUnit* x, size_t x_rows, float* sums) {
      for (size_t i = 0; i < panels; ++i)
        dots.panel_dot[x_rows - kPanelLeastRowsOfX](memory + i * bytes, x, units_, sums + i * kPanelWeightRows,
                                                    kTaskRows);
    });
  }

  Context& context_;
  const MatmulGroup& group_;
  const MatmulProblem& first_;  // what it says of x is true of all
  const size_t in_, units_;
  XUnit* x_ = nullptr;  // [rows][units]
};

template <class Set>
void matmul_int8_with(Context& context, const MatmulGroup& group) {
  const auto same_layout = [](const MatmulProblem& a, const MatmulProblem& b) {
    return &Set::type(a.dtype).x == &Set::type(b.dtype).x;
  };
  run_together(group, same_layout, [&](const MatmulGroup& each) { Int8Matmul<Set>(context, each).run(); });
}

}  // namespace godwit::cpu
