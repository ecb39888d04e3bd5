// Rows of several sequences that begin by reading the same pages walk these once, together (Juravsky et al., Hydragen,
// arXiv 2402.05099): a page is then read and unpacked for all of them, and its keys meet many queries at once.
//
// Nothing is approximated and no bit changes: shared pages are whole segments of the walk (see backend/attention.h),
// so a row's sums after them are those that it would have had by itself, and it goes on from there. On the scalar
// reference, whose walk has no segments, results are equal up to rounding.
#pragma once

#include "backend/backend.h"

namespace godwit {

struct SharedPlan {
  AttentionPlan shared;  // tiles of rows that several tiles of the plan had, over pages that all of these begin with
  AttentionPlan rest;    // the plan's tiles without those pages
};

// Tiles of few rows that follow one another in the batch and begin with the same pages; false if there are none.
bool find_shared_pages(const AttentionPlan& plan, SharedPlan& found);

// Backend::attention(args). `state` is room for [rows, q_heads, attention_state_width] f32. REQUIRES: args.partial.
void attend_sharing(Backend& backend, const AttentionArgs& args, const Tensor& state);

}  // namespace godwit
