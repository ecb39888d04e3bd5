// One layer of a model on N context-parallel ranks, as events: each rank computes, its link sends, a message is used
// when it has come and its buffer is free. Overlap, waiting, skew and uneven shards are what comes out.
//
// A rank stands for the devices of its tensor-parallel group, which do the same at the same time.
#pragma once

#include <cstddef>
#include <vector>

#include "dist/ring_cost.h"
#include "plan/hardware.h"

namespace godwit::plan {

// Seconds and bytes of one layer, by rank. Sizes of 0 are no messages: nothing is padded.
struct RingLayer {
  size_t ranks = 1;
  std::vector<double> before_s, after_s;                 // what a rank computes before and after attention
  std::vector<double> attention_s;                       // [query rank][KV rank]
  std::vector<double> merge_step_s, merge_all_s;         // two partial outputs; all N at once
  std::vector<double> kv_bytes, q_bytes, partial_bytes;  // messages of a rank
  std::vector<double> new_kv_bytes{};                    // of its rows, to ranks that keep them; empty: they stay
  std::vector<double> slowness;                          // by which all that a rank computes is multiplied
  double step_s = 0;
  bool overlapped = true;

  double attention(size_t query_rank, size_t kv_rank) const { return attention_s[query_rank * ranks + kv_rank]; }
};

struct RingRun {
  std::vector<double> done_s;     // when each rank is through
  std::vector<double> waiting_s;  // how long each rank's compute stood still between its entry and its end
  double sent_bytes = 0;          // by all ranks
};

// Ranks enter at `entry_s`.
RingRun simulate_prefill(const RingLayer& layer, dist::RingMode mode, const Link& link,
                         const std::vector<double>& entry_s);
// One token of each sequence; attention_s[0][k] is all that rank k does for all queries.
RingRun simulate_decode(const RingLayer& layer, const Link& link, const std::vector<double>& entry_s);

}  // namespace godwit::plan
