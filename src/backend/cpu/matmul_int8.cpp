#include "backend/cpu/matmul_int8.h"

#include <algorithm>

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/matmul_outputs.h"

namespace godwit::cpu {
namespace {

// From this many rows of x on, copying weights into panels costs less than it saves.
constexpr size_t kPanelsFrom = 12;
static_assert(kPanelsFrom / ((kPanelsFrom + kPanelRowsOfX) / kPanelRowsOfX) >= kPanelLeastRowsOfX);
constexpr size_t kTaskRows = 64;  // of weights, at most; x of many rows passes by them while they are in cache
constexpr size_t kTaskBytes = 96 * 1024;

struct Task {
  const MatmulJob* job;
  size_t begin, end;  // weight rows
};

class Int8Matmul {
 public:
  Int8Matmul(Context& context, const MatmulProblem& problem)
      : context_(context),
        problem_(problem),
        type_(int8_type(problem.dtype)),
        in_(static_cast<size_t>(problem.in)),
        units_((in_ + kUnitValues - 1) / kUnitValues) {}

  void run() {
    if (problem_.x.empty() || problem_.out == 0) return;
    quantize();
    const std::vector<Task> tasks = make_tasks();
    context_.pool.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i, int thread) {
      const Task& task = tasks[static_cast<size_t>(i)];
      in_panels(*task.job) ? run_panels(task, thread) : run_rows(task);
    });
  }

 private:
  void quantize() {
    const size_t rows = problem_.x.size();
    x_ = reinterpret_cast<XUnit*>(context_.shared_scratch(rows * units_ * sizeof(XUnit)));
    const auto one = [&](int64_t row) {
      quantize_x(problem_.x[static_cast<size_t>(row)], in_, type_.x, x_ + static_cast<size_t>(row) * units_);
    };
    constexpr size_t kParallelValues = 32 * 1024;
    if (rows > 1 && rows * in_ >= kParallelValues) {
      context_.pool.parallel_for(static_cast<int64_t>(rows), one);
    } else {
      for (size_t row = 0; row < rows; ++row) one(static_cast<int64_t>(row));
    }
  }

  static bool in_panels(const MatmulJob& job) {
    return static_cast<size_t>(job.row_end - job.row_begin) >= kPanelsFrom;
  }

  std::vector<Task> make_tasks() const {
    const auto out = static_cast<size_t>(problem_.out), threads = static_cast<size_t>(context_.pool.threads());
    size_t share = kTaskRows;  // enough tasks to balance the threads
    if (threads > 1) share = std::min(share, out * problem_.jobs.size() / (threads * 4));
    std::vector<Task> tasks;
    for (const MatmulJob& job : problem_.jobs) {
      const bool panels = in_panels(job);
      const size_t step = panels ? kPanelWeightRows : kDotWeightRows;
      const size_t most = panels ? kTaskRows : kTaskBytes / problem_.weight_stride;
      const size_t rows = std::clamp(std::min(share, most) / step * step, step, kTaskRows);
      for (size_t row = 0; row < out; row += rows) tasks.push_back({&job, row, std::min(row + rows, out)});
    }
    return tasks;
  }

  Int8Weights weights(const Task& task, size_t row, size_t most) const {
    return {task.job->weight + row * problem_.weight_stride, problem_.weight_stride, std::min(most, task.end - row),
            in_};
  }

  void run_rows(const Task& task) const {
    float sums[kDotRowsOfX * kTaskRows];
    const auto end = static_cast<size_t>(task.job->row_end);
    for (size_t x_row = static_cast<size_t>(task.job->row_begin); x_row < end; x_row += kDotRowsOfX) {
      const size_t x_rows = std::min(kDotRowsOfX, end - x_row);
      for (size_t row = task.begin; row < task.end; row += kDotWeightRows)
        type_.dot[x_rows - 1](weights(task, row, kDotWeightRows), x_ + x_row * units_, units_,
                              sums + (row - task.begin), kTaskRows);
      TileOutputs{problem_, x_row, x_rows}.write(sums, kTaskRows, task.begin, task.end - task.begin);
    }
  }

  void run_panels(const Task& task, int thread) const {
    const size_t panel_bytes = units_ * type_.panel_unit_bytes;
    const size_t panels = (task.end - task.begin + kPanelWeightRows - 1) / kPanelWeightRows;
    std::byte* memory = context_.scratch(thread, panels * panel_bytes);
    for (size_t i = 0; i < panels; ++i)
      type_.fill(weights(task, task.begin + i * kPanelWeightRows, kPanelWeightRows), units_, memory + i * panel_bytes);
    float sums[kPanelRowsOfX * kTaskRows];
    const auto begin = static_cast<size_t>(task.job->row_begin), end = static_cast<size_t>(task.job->row_end);
    const size_t tiles = (end - begin + kPanelRowsOfX - 1) / kPanelRowsOfX;
    for (size_t tile = 0; tile < tiles; ++tile) {  // of nearly the same size
      const size_t x_row = begin + tile * (end - begin) / tiles;
      const size_t x_rows = begin + (tile + 1) * (end - begin) / tiles - x_row;
      for (size_t i = 0; i < panels; ++i)
        type_.panel_dot[x_rows - kPanelLeastRowsOfX](memory + i * panel_bytes, x_ + x_row * units_, units_,
                                                     sums + i * kPanelWeightRows, kTaskRows);
      TileOutputs{problem_, x_row, x_rows}.write(sums, kTaskRows, task.begin, task.end - task.begin);
    }
  }

  Context& context_;
  const MatmulProblem& problem_;
  const Int8Type& type_;
  const size_t in_, units_;
  XUnit* x_ = nullptr;  // [rows][units]
};

}  // namespace

void matmul_int8(Context& context, const MatmulProblem& problem) {
  Int8Matmul(context, problem).run();
}

}  // namespace godwit::cpu
