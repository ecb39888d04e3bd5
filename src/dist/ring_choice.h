// Which way a step's attention goes: predicted from its sizes and from constants that are measured when a job starts.
#pragma once

#include "dist/ring_attention.h"

namespace godwit::dist {

struct RingCosts {
  RingConstants link;
  // A walk over one segment takes this long, plus this per row.
  double segment_s = 0, row_s = 0;
  // All but attention, of all layers: a pass takes this long, plus this per row.
  double pass_s = 0, pass_row_s = 0;
};

// On every rank at once. What rank 0 finds is what counts: it chooses for all.
Result<RingCosts> measure_costs(Transport& transport, RingAttention& ring);

struct RingPrediction {
  RingMode mode = RingMode::kPassKv;
  double pass_kv_s = 0, pass_q_s = 0;  // of a layer
};

// Of the ranks of `shards`; of those that take part in a sequence it does not matter which they are. Queries of so many
// sequences travel together, and share what a message costs however short it is.
RingPrediction predict(const RingCosts& costs, const RingAttention& ring, const Shards& shards, const KvFormat& format,
                       Stretch step, int together = 1);

// Bytes that all ranks together send for one layer of a step without a window, by the formulas: each segment, in whole
// pages, to every other rank with rows; queries to every other rank that keeps something, and one state per segment
// (or, if not exact, per rank) back; new tokens to their keepers, counted without what pages are rounded up.
struct RingBytes {
  double slots = 0, pages = 0, queries = 0, states = 0;
  double total() const { return slots + pages + queries + states; }
};
RingBytes formula_bytes(const RingAttention& ring, const Shards& shards, const KvFormat& format, Stretch step,
                        RingMode mode);

}  // namespace godwit::dist
