#include "backend/cpu/matmul_decode.h"

#include <algorithm>

#include "backend/cpu/decode_dot.h"
#include "backend/cpu/matmul_outputs.h"

namespace godwit::cpu {
namespace {

constexpr size_t kTaskRows = 64;  // at most; x of many rows passes by them while they are in the second cache
constexpr size_t kTaskBytes = 96 * 1024;

struct Task {
  const MatmulJob* job;
  size_t begin, end;  // weight rows
};

class DecodeMatmul {
 public:
  DecodeMatmul(Context& context, const MatmulProblem& problem)
      : context_(context),
        problem_(problem),
        type_(decode_type(problem.dtype)),
        in_(static_cast<size_t>(problem.in)),
        units_((in_ + kUnitValues - 1) / kUnitValues) {}

  void run() {
    if (problem_.x.empty() || problem_.out == 0) return;
    quantize();
    const std::vector<Task> tasks = make_tasks();
    context_.pool.parallel_for(static_cast<int64_t>(tasks.size()),
                               [&](int64_t i) { run_task(tasks[static_cast<size_t>(i)]); });
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

  std::vector<Task> make_tasks() const {
    const auto out = static_cast<size_t>(problem_.out), threads = static_cast<size_t>(context_.pool.threads());
    size_t rows = kTaskBytes / problem_.weight_stride;
    if (threads > 1) rows = std::min(rows, out * problem_.jobs.size() / (threads * 4));
    rows = std::clamp(rows / kDotWeightRows * kDotWeightRows, kDotWeightRows, kTaskRows);
    std::vector<Task> tasks;
    for (const MatmulJob& job : problem_.jobs)
      for (size_t row = 0; row < out; row += rows) tasks.push_back({&job, row, std::min(row + rows, out)});
    return tasks;
  }

  void run_task(const Task& task) const {
    float sums[kDotRowsOfX * kTaskRows];
    const auto end = static_cast<size_t>(task.job->row_end);
    DecodeWeights weights{};
    weights.stride = problem_.weight_stride;
    weights.in = in_;
    for (size_t x_row = static_cast<size_t>(task.job->row_begin); x_row < end; x_row += kDotRowsOfX) {
      const size_t x_rows = std::min(kDotRowsOfX, end - x_row);
      const DecodeDot dot = type_.dot[x_rows - 1];
      for (size_t row = task.begin; row < task.end; row += kDotWeightRows) {
        weights.first = task.job->weight + row * weights.stride;
        weights.rows = std::min(kDotWeightRows, task.end - row);
        dot(weights, x_ + x_row * units_, units_, sums + (row - task.begin), kTaskRows);
      }
      TileOutputs{problem_, x_row, x_rows}.write(sums, kTaskRows, task.begin, task.end - task.begin);
    }
  }

  Context& context_;
  const MatmulProblem& problem_;
  const DecodeType& type_;
  const size_t in_, units_;
  XUnit* x_ = nullptr;  // [rows][units]
};

}  // namespace

void matmul_decode(Context& context, const MatmulProblem& problem) {
  DecodeMatmul(context, problem).run();
}

}  // namespace godwit::cpu
