// What queries attend to, slot by slot. Attention keeps no scores; who wants to know which slots of a cache are used
// asks for that by an operation of its own.
//
// The weight of a slot for a row is the mean of exp(score - lse) over the query heads that read the KV head, lse being
// what attention() gave; so a row's weights over all that it sees sum to 1. A slot that it does not see weighs 0. A row
// *uses* a slot that weighs at least `use_factor` times the mean over the slots that it sees: those of its tile and, if
// slots of other processes went into the lse, theirs.
//
// Results are per slot of the plan's pages: row i of an output belongs to plan->pages[i]. Slots past a page's count get
// 0 or -1. A page that is in two tiles gets two results, each over its own tile's rows, in the order of the rows; they
// depend neither on threads nor on the other pages of the plan (except for what counts as the mean weight).
#pragma once

#include "backend/attention.h"

namespace godwit {

struct ObserveArgs {
  AttentionArgs attention;  // as attention() took them; partial.lse is read, partial.out is not
  float use_factor = 1;
  Tensor seen_elsewhere = {};  // [rows, kv_heads] i32: slots that a row sees beyond its tile; none: 0
  // All [plan pages, page_tokens], written; those after `mass` only where given.
  Tensor mass;    // f32: sum of the rows' weights
  Tensor square;  // f32: sum of their squares
  Tensor uses;    // i32: how many rows use the slot
  // i32, all three or none: positions of the first and the last row that uses the slot (-1: none does), and the longest
  // way from one such row to the next (0: there are no two).
  Tensor first_use, last_use, longest_gap;
};

}  // namespace godwit
