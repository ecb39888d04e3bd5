// The attention contract: what a plan says and what a partial is.
//
// Everything that attends yields an AttnPartial: the normalised output over some set of slots and the natural logarithm
// of the sum of exponentials (LSE) over that set, both fp32. The empty set is out = 0, lse = -inf. Partials over
// disjoint sets merge to the partial over their union (Backend::merge_partials), which is how splits of a long cache,
// host tiers, shared prefixes and remote ranks come together.
//
// A plan is data: for each tile (a run of query rows, one KV head) the pages to read, in order. Masking is by position:
// slot s is visible to query q iff pos(s) <= pos(q) and, with a window w > 0, pos(q) - pos(s) < w.
//
// Invariance: a row's result depends on its query, the visible slots and their pages' ordinals, and on nothing else;
// not on the rows beside it, on invisible pages being listed, or on threads. The walk restarts its running softmax at
// every ordinal that is a multiple of kSegmentPages and merges segments in order, so a back-end may split there. A
// caller may, too: a walk that stops between two segments leaves its *state*, the sums before they are divided, and
// goes on from it in another call, over pages of another slab, or in another process. Whoever walks segments in order,
// or walks each by itself and lets Backend::finish_attention take their states in order, gets the bits of one walk.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/kv_format.h"
#include "tensor/tensor.h"

namespace godwit {

inline constexpr uint32_t kSegmentPages = 16;  // 1,024 tokens with pages of 64

struct PageRef {
  PageId page = 0;             // kOpenPage says which slab it is of
  uint32_t ordinal = 0;        // index of this page in its head's page list
  int32_t first_position = 0;  // position of slot 0; slots are consecutive while aux == kNoAux
  uint32_t count = 0;          // filled slots
  uint32_t aux = kNoAux;       // index of explicit positions and biases in the aux slab
};

struct AttentionTile {
  int32_t row_begin = 0, row_end = 0;  // query rows
  int32_t kv_head = 0;
  uint32_t page_begin = 0, page_end = 0;  // range of AttentionPlan::pages, ascending ordinals
};

struct AttentionPlan {
  std::vector<AttentionTile>
      tiles;  // each (row, KV head) is in at most one tile; rows of no tile get the empty partial
  std::vector<PageRef> pages;
};

struct AttnPartial {
  Tensor out;  // [rows, q_heads, head_dim] f32
  Tensor lse;  // [rows, q_heads] f32
};

// Of each (row, query head) the unnormalised output, then the maximum and the sum of weights below it.
inline int64_t attention_state_width(int head_dim) {
  return head_dim + 2;
}

struct AttentionArgs {
  KvFormat format;
  const std::byte* slab = nullptr;       // pages
  const std::byte* open_slab = nullptr;  // open pages, if the format seals
  const std::byte* aux = nullptr;        // explicit slot data; may be null when no page refers to it
  const AttentionPlan* plan = nullptr;
  Tensor q;          // [rows, q_heads, head_dim] f32
  Tensor positions;  // [rows] i32
  int kv_heads = 0;  // q_heads is a multiple; query head h reads KV head h / (q_heads / kv_heads)
  float scale = 1;
  float softcap = 0;     // scores become cap * tanh(score / cap); 0 = off
  int32_t window = 0;    // 0 = none
  AttnPartial partial;   // written, unless there is
  Tensor state = {};     // [rows, q_heads, attention_state_width] f32: what the walk leaves instead, ...
  bool resumes = false;  // ... and goes on from; else it starts anew and rows of no tile get the empty state
  const std::function<void()>* poll = nullptr;  // optional; the calling thread calls it now and then

  const std::byte* page(const PageRef& ref) const {
    return (is_open(ref.page) ? open_slab : slab) + page_index(ref.page) * format.page_bytes(ref.page);
  }
};

struct FinishAttentionArgs {
  KvFormat format;                 // of the pages that were walked
  std::span<const Tensor> states;  // over disjoint slots, in the order of their segments
  AttnPartial partial;             // written
};

}  // namespace godwit
