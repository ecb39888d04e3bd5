// Matrix products with bf16 operands: the loops around a kernel that multiplies a panel of weights, expanded to bf16,
// with tiles of rows of x.
//
// An output's bits depend on its row of x and its row of weights alone: a kernel sums over K in blocks of 32 in order,
// whatever the other rows, and sums that leave the registers between two chunks of K are carried in full.
//
// A Kernel has
//   kPanelRows, kChunk      weight rows of a panel, and its values of K; the panel is [kChunk / 32][kPanelRows][32]
//   kStep                   values of K that all tiles of x pass by before the next ones do; divides kChunk
//   kTileRows, kBlockTiles  rows of x per tile, and how many tiles' sums are carried at a time
//   kTaskRows, kRowStep     at most so many weight rows make a task, in multiples of kRowStep
//   kCarryFloats            sums of a panel with a tile in the kernel's own layout
//   tile_width(rows, all)   how many rows a tile of `rows` rows is packed as, of `all` rows of x
//   pack(rows, count, width, k, end, to)   packs values [k, end) of a tile as [block of 32][width * 32], zero-padded
//   multiply(const PanelStep&)         adds a step's products; the last writes sums[row of x][kPanelRows]
//   kStreamRows, kStreamBytes, stream(const WeightStream&)   the same sums for up to kStreamRows rows of x, where
//                           reading the weights is what takes time, with so much scratch
//   kPromptsIn8Bits         quantized weights are multiplied in 8 bits in prompts, too, because that is faster
// and lives for one task on one thread.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_int8.h"
#include "backend/cpu/matmul_outputs.h"

namespace godwit::cpu {

struct PanelStep {
  const uint16_t* panel;
  size_t panel_rows;  // of kPanelRows: those that are there
  const uint16_t* x;
  size_t x_rows, width;
  size_t blocks;  // of 32 values of K; the next tile's lie behind this one's
  bool first, last;
  float* carry;
  float* sums;
};

// All weight rows of a task with one tile of x.
struct WeightStream {
  const std::byte* weight;
  size_t begin, end;  // weight rows
  ExpandRows expand;
  const uint16_t* x;
  size_t width;
  TileOutputs outputs;
  std::byte* scratch;

  WeightRows rows(size_t row, size_t count) const {
    return {weight + row * outputs.problem.weight_stride,
            outputs.problem.weight_stride,
            count,
            0,
            static_cast<size_t>(outputs.problem.in),
            0};
  }
};

template <class Kernel>
class PanelMatmul {
 public:
  PanelMatmul(Context& context, const MatmulProblem& problem)
      : context_(context),
        problem_(problem),
        expand_(expand_rows_to_bf16(problem.dtype)),
        in_(static_cast<size_t>(problem.in)),
        blocks_((in_ + kBf16Block - 1) / kBf16Block) {}

  void run() {
    if (problem_.x.empty() || problem_.out == 0) return;
    pack_x();
    const std::vector<Task> tasks = make_tasks();
    context_.pool.parallel_for(static_cast<int64_t>(tasks.size()),
                               [&](int64_t i, int thread) { run_task(tasks[static_cast<size_t>(i)], thread); });
  }

 private:
  static constexpr size_t kChunkBlocks = Kernel::kChunk / kBf16Block, kStepBlocks = Kernel::kStep / kBf16Block;
  static_assert(Kernel::kChunk % 256 == 0, "expanders begin at whole blocks of every type");
  static_assert(Kernel::kChunk % Kernel::kStep == 0 && Kernel::kStep % kBf16Block == 0);

  struct Tile {
    size_t row, rows, width;
    size_t before;  // widths of the job's tiles before it
  };
  // x of a job: [step of K][tile][block of the step][width * 32]. What passes by a panel in one step lies together, at
  // no power of two from each other, and the whole of it fits the second cache.
  struct PackedX {
    uint16_t* values;
    size_t width;  // of all tiles
    size_t blocks;

    size_t step_blocks(size_t block) const { return std::min(kStepBlocks, blocks - block); }
    // `block` begins a step.
    uint16_t* at(const Tile& tile, size_t block) const {
      return values + kBf16Block * (block * width + tile.before * step_blocks(block));
    }
  };
  struct Job {
    const std::byte* weight;
    size_t first_tile, tiles;
    PackedX x;
  };
  struct Task {
    const Job* job;
    size_t begin, end;  // weight rows
  };
  struct Scratch {
    uint16_t* panel;
    float *sums, *carry;
  };

  TileOutputs outputs(const Tile& tile) const { return {problem_, tile.row, tile.rows}; }
  std::span<const Tile> tiles_of(const Job& job) const { return std::span(tiles_).subspan(job.first_tile, job.tiles); }

  void pack_x() {
    size_t widths = 0;
    std::vector<const Job*> owners;  // of the tiles
    jobs_.reserve(problem_.jobs.size());
    for (const MatmulJob& job : problem_.jobs) {
      const auto begin = static_cast<size_t>(job.row_begin), end = static_cast<size_t>(job.row_end);
      jobs_.push_back({job.weight, tiles_.size(), 0, {nullptr, 0, blocks_}});
      Job& to = jobs_.back();
      for (size_t row = begin; row < end; row += Kernel::kTileRows, ++to.tiles) {
        const size_t rows = std::min(Kernel::kTileRows, end - row), width = Kernel::tile_width(rows, end - begin);
        tiles_.push_back({row, rows, width, to.x.width});
        owners.push_back(&to);
        to.x.width += width;
      }
      widths += to.x.width;
    }
    const size_t values = widths * blocks_ * kBf16Block;
    auto* to = reinterpret_cast<uint16_t*>(context_.shared_scratch(values * sizeof(uint16_t)));
    for (Job& job : jobs_) {
      job.x.values = to;
      to += job.x.width * blocks_ * kBf16Block;
    }
    const auto pack = [&](int64_t i) {
      const Tile& tile = tiles_[static_cast<size_t>(i)];
      const PackedX& x = owners[static_cast<size_t>(i)]->x;
      for (size_t block = 0; block < blocks_; block += kStepBlocks)
        Kernel::pack(problem_.x.data() + tile.row, tile.rows, tile.width, block * kBf16Block,
                     std::min(in_, block * kBf16Block + Kernel::kStep), x.at(tile, block));
    };
    constexpr size_t kParallelValues = 64 * 1024;
    if (values >= kParallelValues) {
      context_.pool.parallel_for(static_cast<int64_t>(tiles_.size()), pack);
    } else {
      for (size_t i = 0; i < tiles_.size(); ++i) pack(static_cast<int64_t>(i));
    }
  }

  // Enough tasks to balance the threads, as wide as that allows, so that x is read seldom.
  std::vector<Task> make_tasks() const {
    const auto threads = static_cast<size_t>(context_.pool.threads()), out = static_cast<size_t>(problem_.out);
    size_t rows = Kernel::kTaskRows;
    if (threads > 1) rows = std::clamp(out * problem_.jobs.size() / (threads * 4), Kernel::kRowStep, rows);
    rows -= rows % (rows < Kernel::kPanelRows ? Kernel::kRowStep : Kernel::kPanelRows);
    std::vector<Task> tasks;
    for (const Job& job : jobs_)
      for (size_t row = 0; row < out; row += rows) tasks.push_back({&job, row, std::min(row + rows, out)});
    return tasks;
  }

  void run_task(const Task& task, int thread) {
    const std::span all = tiles_of(*task.job);
    if (all.size() == 1 && all.front().rows <= Kernel::kStreamRows) {
      const Tile& tile = all.front();
      return Kernel(tile.width)
          .stream({task.job->weight, task.begin, task.end, expand_, task.job->x.values, tile.width, outputs(tile),
                   context_.scratch(thread, Kernel::kStreamBytes)});
    }
    const size_t panels = (task.end - task.begin + Kernel::kPanelRows - 1) / Kernel::kPanelRows;
    const size_t carried = std::min(all.size(), Kernel::kBlockTiles) * panels;
    constexpr size_t kPanelBytes = Kernel::kPanelRows * Kernel::kChunk * sizeof(uint16_t);
    constexpr size_t kSumsBytes = (Kernel::kPanelRows * Kernel::kTileRows * sizeof(float) + 63) / 64 * 64;
    std::byte* memory =
        context_.scratch(thread, kPanelBytes + kSumsBytes + carried * Kernel::kCarryFloats * sizeof(float));
    const Scratch scratch{reinterpret_cast<uint16_t*>(memory), reinterpret_cast<float*>(memory + kPanelBytes),
                          reinterpret_cast<float*>(memory + kPanelBytes + kSumsBytes)};
    Kernel kernel(all.front().width);
    for (size_t tile = 0; tile < all.size(); tile += Kernel::kBlockTiles) {
      const std::span tiles = all.subspan(tile, std::min(Kernel::kBlockTiles, all.size() - tile));
      for (size_t block = 0; block < blocks_; block += kChunkBlocks)
        for (size_t panel = 0; panel < panels; ++panel) run_panel(kernel, task, tiles, panel, block, scratch);
    }
  }

  void run_panel(Kernel& kernel, const Task& task, std::span<const Tile> tiles, size_t panel, size_t block,
                 const Scratch& scratch) {
    const size_t row = task.begin + panel * Kernel::kPanelRows, rows = std::min(Kernel::kPanelRows, task.end - row);
    const size_t k = block * kBf16Block;
    const size_t count = std::min(Kernel::kChunk, in_ - k), stride = problem_.weight_stride;
    expand_({task.job->weight + row * stride, stride, rows, k, count, Kernel::kPanelRows * stride}, scratch.panel,
            Kernel::kPanelRows);
    PanelStep step{};
    step.panel = scratch.panel;
    step.panel_rows = rows;
    step.sums = scratch.sums;
    const size_t end = std::min(block + kChunkBlocks, blocks_);
    for (; block < end; block += step.blocks, step.panel += step.blocks * Kernel::kPanelRows * kBf16Block) {
      step.blocks = task.job->x.step_blocks(block);
      step.first = block == 0;
      step.last = block + step.blocks == blocks_;
      step.carry = scratch.carry + panel * tiles.size() * Kernel::kCarryFloats;
      for (const Tile& tile : tiles) {
        step.x = task.job->x.at(tile, block);
        step.x_rows = tile.rows;
        step.width = tile.width;
        kernel.multiply(step);
        if (step.last) outputs(tile).write(scratch.sums, Kernel::kPanelRows, row, rows);
        step.carry += Kernel::kCarryFloats;
      }
    }
  }

  Context& context_;
  const MatmulProblem& problem_;
  const ExpandRows expand_;
  const size_t in_, blocks_;  // values per row, and blocks of 32 they fill
  std::vector<Tile> tiles_;
  std::vector<Job> jobs_;
};

// The type and the phase decide, not the number of rows.
template <class Kernel>
void matmul_in_phase(Context& context, const MatmulProblem& problem) {
  if (is_quantized(problem.dtype) && (Kernel::kPromptsIn8Bits || problem.phase == Phase::kDecode))
    return matmul_int8(context, problem);
  PanelMatmul<Kernel>(context, problem).run();
}

}  // namespace godwit::cpu
