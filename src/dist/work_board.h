// Blocks of rows of an attention walk that a rank offers to the other ranks of its host.
//
// Every rank has a board in memory that all map: what it offers, its queries, and the states that the walk leaves. It
// takes blocks from its own board, and whoever has nothing to wait for takes some, too: a block is computed from what
// is on the board and from pages that all ranks see, and its states are written where the owner would have written
// them. The owner goes on when all blocks are back, so a board never changes under one who works for it.
//
// Offers have a *stage*, which grows within a step: one with a lower stage is behind. Steps have numbers, too: who is
// not in the same step as the owner takes nothing. Thread-safety: one thread of each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "dist/shared_memory.h"

namespace godwit::dist {

// Plain data, in memory that other processes read.
struct OfferedWalk {
  int32_t part = 0, layer = 0;  // of the step
  int32_t fresh = 0;            // over what is new, not over what was there before
  int32_t row_begin = 0;        // on the board
  int32_t row_count = 0, rows_per_block = 1;
  int32_t window = 0;
  float scale = 1, softcap = 0;

  int32_t blocks() const { return (row_count + rows_per_block - 1) / rows_per_block; }
  // Rows of a block, of the walk's. Later rows come first: they see more of a prompt.
  int32_t block_end(int32_t block) const { return row_count - block * rows_per_block; }
  int32_t block_begin(int32_t block) const { return std::max(0, block_end(block) - rows_per_block); }
};

class WorkBoard {
 public:
  static constexpr int32_t kMaxBlocks = 1024;  // of a walk

  struct Shape {
    size_t rows = 0;
    size_t query_bytes = 0, state_bytes = 0;  // of a row
  };
  // On every rank. Null where not all ranks share memory.
  static Result<std::unique_ptr<WorkBoard>> create(Transport& transport, const Shape& shape);

  // Parts of a rank's board: [rows] each.
  std::byte* queries(int rank) const { return board(rank) + queries_at_; }
  std::byte* positions(int rank) const { return board(rank) + positions_at_; }
  std::byte* states(int rank) const { return board(rank) + states_at_; }

  // --- the owner
  // REQUIRES: what was offered before is withdrawn; row_count > 0, at most kMaxBlocks blocks.
  void offer(uint16_t step, uint16_t stage, const OfferedWalk& walk);
  std::optional<int32_t> take_own();
  bool all_returned() const;
  int rank_that_owes() const;  // a block that is not returned; -1: none
  // Nanoseconds that others worked on it. REQUIRES: all_returned().
  int64_t withdraw();

  // --- the others
  struct Taken {
    int owner = 0;
    int32_t block = 0;
    OfferedWalk walk;
  };
  // Of whoever is behind the most, if that is before `stage`.
  std::optional<Taken> take(uint16_t step, uint32_t stage);
  void give_back(const Taken& taken, int64_t worked_ns);

 private:
  struct Head;
  WorkBoard(SharedView view, const Shape& shape, int rank);
  std::byte* board(int rank) const { return view_.base.get() + static_cast<size_t>(rank) * view_.stride; }
  Head& head(int rank) const;
  std::optional<int32_t> take_from(int owner, uint64_t seen);

  const SharedView view_;
  const int rank_, ranks_;
  size_t queries_at_, positions_at_, states_at_;
};

}  // namespace godwit::dist
