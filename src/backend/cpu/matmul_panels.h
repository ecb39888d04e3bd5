// Matrix products of many rows: the loops around a kernel that multiplies a panel of weights, expanded to what it
// takes, with tiles of rows of x.
//
// An output's bits depend on its row of x and its row of weights alone: a kernel sums over K in blocks in order,
// whatever the other rows, and sums that leave the registers between two chunks of K are carried in full.
//
// clang-format off
// A Kernel lives for one task on one thread, and has
//
//   kBlock                  values of 64 bytes, a line
//   kTailBytes              what a row has behind its lines of a chunk
//   kPanelRows, kChunk      weight rows of a panel, and its values of K, which all tiles of x pass by before the next
//   kTileRows, kBlockTiles  rows of x per tile, and how many tiles make a task
//   kTaskRows, kRowStep     at most so many weight rows make a task, in multiples of kRowStep
//   kCarryFloats            sums of a panel with a tile in the kernel's own layout
//   kInPlace                panels may be used where they are; then the next one is fetched from memory meanwhile
//   kPairs                  panels may be of two matrices, strips of both in turn (TileOutputs)
//   kLag                    how many steps later a step's panel is still read
//
//   tile_width(rows, all)         how many rows a tile of `rows` rows is packed as, of `all` rows of x
//   blocks(in)                    that `in` values fill
//   expander(dtype, packed)       what panel() expands rows of weights with, or strips
//   panel(expander, weights, to)  the weights of a panel, in so many bytes as its rows' lines and tails take, or in place
//   pack(dtype, rows, count, width, k, end, to)
//                                 values [k, end) of a tile, for weights of a type, as [block][width] lines and then the
//                                 rows' tails; rows that are not there may be anything
//   same_x(a, b)                  whether pack() does the same for both types
//   multiply(const PanelStep&)    adds a step's products; the last writes its outputs, by finish() at the latest
//
//   kStreamRows, stream_bytes(in), stream(WeightStream)
//                                 the same sums for up to kStreamRows rows of x, where reading the weights is what takes
//                                 time, with so much scratch; not from strips
// clang-format on
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/int8_dot.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_int8.h"
#include "backend/cpu/matmul_outputs.h"
#include "backend/cpu/matmul_table.h"

namespace godwit::cpu {

// Rows that make a panel, and where the same rows of the other matrix of a pair begin (null: there is none).
struct PanelWeights {
  WeightRows rows;
  const std::byte* paired;
};
struct WeightPanel {
  const std::byte* bytes;
  const std::byte* second;  // its second strip, where it is made of strips
};

struct PanelStep {
  WeightPanel panel;
  size_t row, panel_rows;  // outputs: the first, and how many are there
  const std::byte* x;
  size_t width;
  size_t blocks;
  bool first, last;
  float* carry;
  float* sums;        // room for those of two steps
  WeightPanel next;   // what to fetch of the next panel's strips, ...
  size_t next_bytes;  // ... of each
  TileOutputs outputs;

  // Weight rows, in the kernel's order.
  size_t rows() const { return outputs.gate != nullptr ? 2 * panel_rows : panel_rows; }
};

// All weight rows of a task with one tile of x.
template <class Expander>
struct WeightStream {
  const std::byte* weight;
  size_t begin, end;  // weight rows
  Expander expand;
  const std::byte* x;
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
  PanelMatmul(Context& context, const MatmulGroup& group)
      : context_(context),
        group_(group),
        first_(group.products.front()),
        in_(static_cast<size_t>(first_.in)),
        blocks_(Kernel::blocks(in_)) {}

  void run() {
    if (first_.x.empty()) return;
    pack_x();
    const std::vector<Task> tasks = make_tasks();
    context_.pool.parallel_ranges(static_cast<int64_t>(tasks.size()),
                                  [&](int64_t i, int thread) { run_task(tasks[static_cast<size_t>(i)], thread); });
  }

 private:
  static constexpr size_t kBlock = Kernel::kBlock, kLine = 64;
  static constexpr size_t kChunkBlocks = Kernel::kChunk / kBlock;
  static constexpr size_t kPanelBytes =
      Kernel::kInPlace ? 0
                       : (Kernel::kPanelRows * (kChunkBlocks * kLine + Kernel::kTailBytes) + kLine - 1) / kLine * kLine;
  static constexpr size_t kCachedBytes = size_t{1} << 20;  // of x, half of what the second cache of such machines holds
  static_assert(Kernel::kChunk % 256 == 0, "expanders begin at whole blocks of every type");

  struct Tile {
    size_t row, rows, width;
    size_t before;  // widths of the job's tiles before it
  };
  // x of a job: [chunk of K][tile], each as the kernel packs it, so that what passes by a panel lies together.
  struct PackedX {
    std::byte* bytes;
    size_t width;  // of all tiles
    size_t blocks;

    size_t chunk_blocks(size_t block) const { return std::min(kChunkBlocks, blocks - block); }
    size_t chunk_bytes(size_t block) const { return chunk_blocks(block) * kLine + Kernel::kTailBytes; }  // of a row
    size_t row_bytes() const {
      return blocks * kLine + (blocks + kChunkBlocks - 1) / kChunkBlocks * Kernel::kTailBytes;
    }
    // `block` begins a chunk.
    std::byte* at(const Tile& tile, size_t block) const {
      return bytes + width * (block * kLine + block / kChunkBlocks * Kernel::kTailBytes) +
             tile.before * chunk_bytes(block);
    }
  };
  struct Job {
    size_t index;
    size_t first_tile, tiles;
    PackedX x;
  };
  struct Task {
    std::span<const MatmulProblem> products;
    const Job* job;
    std::span<const Tile> tiles;
    size_t begin, end;  // weight rows

    size_t width() const { return tiles.back().before + tiles.back().width - tiles.front().before; }
  };
  using Expander = decltype(Kernel::expander(DType::kBF16, false));
  struct Product {  // of a task
    const MatmulProblem& problem;
    const MatmulProblem* gate;  // the first of a pair
    const Task& task;
    const std::byte *weight, *paired;
    Expander expand;

    Product(const MatmulProblem& of, const MatmulProblem* first, const Task& in)
        : problem(of),
          gate(first),
          task(in),
          weight((gate != nullptr ? *gate : of).jobs[in.job->index].weight),
          paired(gate != nullptr ? of.jobs[in.job->index].weight : nullptr),
          expand(Kernel::expander(of.dtype, of.packed)) {}
    TileOutputs outputs(const Tile& tile) const { return {problem, tile.row, tile.rows, gate}; }
    size_t panel_rows() const { return Kernel::kPanelRows / (gate != nullptr ? 2 : 1); }
    // Where value k of a row lies, or of the strip that begins with it.
    size_t offset(size_t row, size_t k) const {
      return row * problem.weight_stride + dtype_bytes(problem.dtype, k) * (problem.packed ? kStripRows : 1);
    }
    // The first two strips of what begins there.
    WeightPanel strips(size_t row, size_t k) const {
      const std::byte* first = weight + offset(row, k);
      return {first, paired != nullptr ? paired + offset(row, k) : first + kStripRows * problem.weight_stride};
    }
  };
  struct Scratch {
    std::byte* panels;  // two
    float *sums, *carry;
  };

  void pack_x() {
    size_t widths = 0;
    std::vector<const Job*> owners;  // of the tiles
    jobs_.reserve(first_.jobs.size());
    for (const MatmulJob& job : first_.jobs) {
      const auto begin = static_cast<size_t>(job.row_begin), end = static_cast<size_t>(job.row_end);
      jobs_.push_back({jobs_.size(), tiles_.size(), 0, {nullptr, 0, blocks_}});
      Job& to = jobs_.back();
      for (size_t row = begin; row < end; row += Kernel::kTileRows, ++to.tiles) {
        const size_t rows = std::min(Kernel::kTileRows, end - row), width = Kernel::tile_width(rows, end - begin);
        tiles_.push_back({row, rows, width, to.x.width});
        owners.push_back(&to);
        to.x.width += width;
      }
      widths += to.x.width;
    }
    const size_t row_bytes = PackedX{nullptr, 0, blocks_}.row_bytes();
    std::byte* to = context_.shared_scratch(widths * row_bytes + kLine * jobs_.size());
    for (Job& job : jobs_) {
      job.x.bytes = to;
      to += (job.x.width * row_bytes + kLine - 1) / kLine * kLine;
    }
    const auto pack = [&](int64_t i) {
      const Tile& tile = tiles_[static_cast<size_t>(i)];
      const PackedX& x = owners[static_cast<size_t>(i)]->x;
      for (size_t block = 0; block < blocks_; block += kChunkBlocks)
        Kernel::pack(first_.dtype, first_.x.data() + tile.row, tile.rows, tile.width, block * kBlock,
                     std::min(in_, block * kBlock + Kernel::kChunk), x.at(tile, block));
    };
    constexpr size_t kParallelValues = 64 * 1024;
    if (widths * in_ >= kParallelValues) {
      context_.pool.parallel_for(static_cast<int64_t>(tiles_.size()), pack);
    } else {
      for (size_t i = 0; i < tiles_.size(); ++i) pack(static_cast<int64_t>(i));
    }
  }

  // Enough tasks to balance the threads, as wide as that allows, so that x is read seldom. Those of the same rows of x
  // come one after the other, and find them in the thread's cache.
  std::vector<Task> make_tasks() const {
    const auto threads = static_cast<size_t>(context_.pool.threads());
    size_t rows = Kernel::kTaskRows, blocks = 0;
    for (const Job& job : jobs_) blocks += (job.tiles + Kernel::kBlockTiles - 1) / Kernel::kBlockTiles;
    if (threads > 1) rows = std::clamp(group_.outputs() * blocks / (threads * 4), Kernel::kRowStep, rows);
    rows -= rows % (rows < Kernel::kPanelRows ? Kernel::kRowStep : Kernel::kPanelRows);
    std::vector<Task> tasks;
    group_.for_units([&](std::span<const MatmulProblem> products) {
      const auto out = static_cast<size_t>(products.front().out);
      for (const Job& job : jobs_)
        for (size_t tile = 0; tile < job.tiles; tile += Kernel::kBlockTiles) {
          const std::span tiles =
              std::span(tiles_).subspan(job.first_tile + tile, std::min(Kernel::kBlockTiles, job.tiles - tile));
          for (size_t row = 0; row < out; row += rows)
            tasks.push_back({products, &job, tiles, row, std::min(row + rows, out)});
        }
    });
    return tasks;
  }

  void run_task(const Task& task, int thread) {
    if (paired(task)) return run_product({task.products[1], &task.products[0], task}, thread);
    for (const MatmulProblem& problem : task.products) run_product({problem, nullptr, task}, thread);
  }
  // Two whose strips can be multiplied in turn, so that a sum of one finds that of the other in the first cache.
  static bool paired(const Task& task) {
    if (!Kernel::kPairs || task.products.size() != 2) return false;
    const MatmulProblem &a = task.products[0], &b = task.products[1];
    return b.gated != nullptr && a.packed && b.packed && a.dtype == b.dtype && a.weight_stride == b.weight_stride;
  }

  void run_product(const Product& product, int thread) {
    const Task& task = product.task;
    if constexpr (Kernel::kStreamRows > 0) {
      if (const Tile& tile = task.tiles.front();
          task.job->tiles == 1 && tile.rows <= Kernel::kStreamRows && !product.problem.packed)
        return Kernel::stream({product.weight, task.begin, task.end, product.expand, task.job->x.bytes, tile.width,
                               product.outputs(tile), context_.scratch(thread, Kernel::stream_bytes(in_))});
    }
    constexpr size_t kSumsBytes = 2 * ((Kernel::kPanelRows * Kernel::kTileRows * sizeof(float) + 63) / 64 * 64);
    const Walk walk(task, product.panel_rows(), blocks_);
    std::byte* memory =
        context_.scratch(thread, 2 * kPanelBytes + kSumsBytes + walk.carried() * Kernel::kCarryFloats * sizeof(float));
    const Scratch scratch{memory, reinterpret_cast<float*>(memory + 2 * kPanelBytes),
                          reinterpret_cast<float*>(memory + 2 * kPanelBytes + kSumsBytes)};
    Kernel kernel(task.tiles.front().width);
    for (size_t i = 0; i < walk.count(); ++i) run_panel(kernel, product, walk, i, scratch);
    kernel.finish();
    end_outputs();
  }

  // The panels of a task. Each goes along K, chunk by chunk, while the rows of x stay in the second cache; where they
  // are too many for it, all panels go along the part of K that it holds before the next part.
  struct Walk {
    struct Place {
      size_t row, block, carry;
    };
    const Task& task;
    size_t panel_rows, panels, chunks;
    size_t part;  // chunks

    Walk(const Task& of, size_t rows, size_t blocks)
        : task(of),
          panel_rows(rows),
          panels((of.end - of.begin + rows - 1) / rows),
          chunks((blocks + kChunkBlocks - 1) / kChunkBlocks),
          part(std::clamp<size_t>(kCachedBytes / (of.width() * kChunkBlocks * kLine), 1, chunks)) {}
    size_t count() const { return panels * chunks; }
    size_t carried() const { return chunks == 1 ? 1 : (part == chunks ? 1 : panels) * task.tiles.size(); }
    // Behind the last comes what the next task begins with.
    Place at(size_t i) const {
      if (i == count()) return {task.end, 0, 0};
      const size_t first = i / (panels * part) * part, in_part = std::min(part, chunks - first);
      const size_t panel = (i - first * panels) / in_part, chunk = first + (i - first * panels) % in_part;
      return {task.begin + panel * panel_rows, chunk * kChunkBlocks, part == chunks ? 0 : panel * task.tiles.size()};
    }
  };

  void run_panel(Kernel& kernel, const Product& product, const Walk& walk, size_t i, const Scratch& scratch) {
    const Task& task = product.task;
    const auto [row, block, carried] = walk.at(i);
    const auto next = walk.at(i + 1);
    const size_t rows = std::min(product.panel_rows(), task.end - row), blocks = task.job->x.chunk_blocks(block);
    const size_t k = block * kBlock, stride = product.problem.weight_stride;
    const size_t from = product.offset(row, k), then = product.offset(next.row, next.block * kBlock);
    const PanelWeights weights{{product.weight + row * stride, stride, rows, k, std::min(Kernel::kChunk, in_ - k),
                                static_cast<ptrdiff_t>(then) - static_cast<ptrdiff_t>(from)},
                               product.paired != nullptr ? product.paired + row * stride : nullptr};
    const WeightPanel panel = Kernel::kInPlace
                                  ? product.strips(row, k)
                                  : Kernel::panel(product.expand, weights, scratch.panels + i % 2 * kPanelBytes);
    WeightPanel fetch = product.strips(next.row, next.block * kBlock);
    const bool first = block == 0, last = block + blocks == blocks_;
    float* carry = scratch.carry + carried * Kernel::kCarryFloats;
    const size_t piece = (blocks * kStripRows / task.tiles.size() + 1) * kLine;  // of the next panel, with each tile
    for (const Tile& tile : task.tiles) {
      kernel.multiply({panel, row, rows, task.job->x.at(tile, block), tile.width, blocks, first, last, carry,
                       scratch.sums, fetch, piece, product.outputs(tile)});
      fetch.bytes += piece;
      fetch.second += piece;
      if (walk.carried() > 1) carry += Kernel::kCarryFloats;
    }
    if (task.tiles.size() < Kernel::kLag) kernel.finish();
  }

  Context& context_;
  const MatmulGroup& group_;
  const MatmulProblem& first_;  // what it says of x is true of all
  const size_t in_, blocks_;    // values per row, and blocks of 32 they fill
  std::vector<Tile> tiles_;
  std::vector<Job> jobs_;
};

template <class Kernel>
void matmul_panels(Context& context, const MatmulGroup& group) {
  const auto same_x = [](const MatmulProblem& a, const MatmulProblem& b) { return Kernel::same_x(a.dtype, b.dtype); };
  run_together(group, same_x, [&](const MatmulGroup& each) { PanelMatmul<Kernel>(context, each).run(); });
}

// The type and the phase decide, not the number of rows: quantized weights are multiplied with 8 bits, in prompts as
// kQuantizedPrompts does.
template <MatmulOf kPlain, MatmulOf kQuantizedPrompts>
void matmul_in_phase(Context& context, const MatmulGroup& group) {
  const auto same_way = [](const MatmulProblem& a, const MatmulProblem& b) {
    return is_quantized(a.dtype) == is_quantized(b.dtype);
  };
  run_together(group, same_way, [&](const MatmulGroup& each) {
    const MatmulProblem& problem = each.products.front();
    if (!is_quantized(problem.dtype)) return kPlain(context, each);
    problem.phase == Phase::kDecode ? matmul_int8(context, each) : kQuantizedPrompts(context, each);
  });
}

template <MatmulOf kPlain, MatmulOf kQuantizedPrompts>
void fill_matmul_of(Kernels& table) {
  fill_matmul_with<matmul_in_phase<kPlain, kQuantizedPrompts>>(table);
}

}  // namespace godwit::cpu
