// How long one layer's attention takes over N ranks, from a few constants: what ranks choose by between the ways of
// moving data around the ring (ring_choice.h, which adds what is theirs), and what the planner's simulation must agree
// with where all ranks carry the same load.
//
// The ways (Yang et al., arXiv 2411.01783): pass-KV lets the keys and values go around; pass-Q lets the queries go
// around and returns the partial outputs by one all-to-all; all-gather fetches all keys and values first and computes
// in one piece, which pays where a step is shorter than a message's latency.
//
// With zigzag shards each of the N steps computes equally much on every rank. Where ranks differ, give the largest: the
// slowest rank sets the pace of a ring. Constants are effective ones, measured on the links and kernels at hand; data
// sheets promise about twice as much. Pure functions, nothing is checked: sizes and rates are the caller's.
#pragma once

#include <algorithm>
#include <string_view>

namespace godwit::dist {

enum class RingMode { kPassKv, kPassQ, kAllGather };

std::string_view ring_mode_name(RingMode mode);  // "pass-kv", …

// A message of so many bytes.
struct LinkCost {
  double latency_s = 0, bytes_per_second = 1;

  constexpr double seconds(double bytes) const { return latency_s + bytes / bytes_per_second; }
};

struct RingConstants {
  LinkCost send;           // to the next rank, while as much comes from the previous one
  LinkCost exchange;       // all with all; bytes are what one rank sends in total
  double step_s = 0;       // beginning and joining one more step: never hidden, N - 1 times per layer
  bool overlapped = true;  // messages travel while the step before theirs is computed
};

// One layer on the rank that has most to do.
struct RingWork {
  int ranks = 1;
  double attention_step_s = 0;  // one of N steps: a rank's queries against a rank's keys and values
  double kv_bytes = 0;          // of a rank, as they travel (cache format)
  double q_bytes = 0;           // of a rank's new tokens
  double partial_bytes = 0;     // output and LSE of a rank's new tokens over one other rank's keys and values
};

// A ring of N steps and N - 1 messages in between. A message that takes longer than a step is waited for.
constexpr double ring_seconds(const RingWork& work, const RingConstants& constants, double message_bytes) {
  const double message_s = constants.send.seconds(message_bytes);
  const double waited_s = constants.overlapped ? std::max(0.0, message_s - work.attention_step_s) : message_s;
  return work.ranks * work.attention_step_s + (work.ranks - 1) * (waited_s + constants.step_s);
}

constexpr double pass_kv_seconds(const RingWork& work, const RingConstants& constants) {
  return ring_seconds(work, constants, work.kv_bytes);
}

constexpr double pass_q_seconds(const RingWork& work, const RingConstants& constants) {
  if (work.ranks == 1) return work.attention_step_s;
  return ring_seconds(work, constants, work.q_bytes) +
         constants.exchange.seconds((work.ranks - 1) * work.partial_bytes);
}

constexpr double all_gather_seconds(const RingWork& work, const RingConstants& constants) {
  if (work.ranks == 1) return work.attention_step_s;
  return constants.exchange.seconds((work.ranks - 1) * work.kv_bytes) + work.ranks * work.attention_step_s;
}

constexpr double ring_mode_seconds(RingMode mode, const RingWork& work, const RingConstants& constants) {
  return mode == RingMode::kPassKv  ? pass_kv_seconds(work, constants)
         : mode == RingMode::kPassQ ? pass_q_seconds(work, constants)
                                    : all_gather_seconds(work, constants);
}

// One token of each sequence: queries to all ranks, around the ring; each attends over what it holds; partial outputs
// back. `work` counts the queries (q_bytes) and partials of all sequences that a rank owns a token of, and
// attention_step_s is its whole share.
constexpr double decode_seconds(const RingWork& work, const RingConstants& constants) {
  if (work.ranks == 1) return work.attention_step_s;
  const int others = work.ranks - 1;
  return others * constants.send.seconds(work.q_bytes) + work.attention_step_s +
         constants.exchange.seconds(others * work.partial_bytes);
}

}  // namespace godwit::dist
