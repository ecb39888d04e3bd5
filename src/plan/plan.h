// Predicts how long a prompt and a generated token take on tp x cp devices, what they need of memory, and where the
// time goes: counts of model.h give each rank's work, events of ring_sim.h give the rest.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_format.h"
#include "plan/model.h"

namespace godwit::plan {

struct PlanRequest {
  PlanModel model;
  Device device;
  Link link;  // between ranks; not used where cp is 1 and tp fits into a node
  KvFormat kv;
  int64_t new_tokens = 0, cached_tokens = 0;
  int tp = 1, cp = 1;
  std::optional<dist::RingMode> mode;  // none: the quickest
  bool overlapped = true;
  int64_t page_tokens = 64;           // shards are whole pages
  int64_t chunk_tokens = 0;           // of each rank, computed at once; 0: the device's own
  int batch = 1;                      // sequences that are generated together, each with all tokens as context
  std::vector<double> cached_shares;  // of each rank; empty: even
  double slowest = 1;                 // the first rank computes so many times as long as the others
};

// Time that one operator takes of a prompt or a token, on the rank with most to do.
struct OpTime {
  std::string name;
  double flops = 0, bytes = 0, seconds = 0;
};

struct Phase {
  double seconds = 0;  // TTFT, TTIT
  // Time that compute stood still: exposed communication and skew. Of a prompt, the mean over ranks; of a token, its
  // owner's.
  double waiting_s = 0;
  double all_reduce_s = 0;  // of tensor parallelism, never hidden
  double sent_bytes = 0;    // between ranks, by all ranks, per device of a rank
  std::vector<OpTime> ops;
};

struct PlanResult {
  int tp = 1, cp = 1;
  Phase prefill, decode;
  std::map<std::string, int> modes;  // of the prefill's steps
  double efficiency = 1;             // TTFT of one rank over cp times this TTFT
  MemoryUse memory;                  // of one device of the fullest rank
  bool fits = true;
  int64_t longest_context = 0;  // that fits, in tokens; 0: not even the weights do

  int devices() const { return tp * cp; }
  std::string mode() const;  // "pass-kv", "pass-kv, pass-q"
};

Result<PlanResult> make_plan(const PlanRequest& request);

// The least devices that reach a target, among those that fit; null: none does. Prefill and decode may well want
// different degrees.
const PlanResult* cheapest(const std::vector<PlanResult>& results, std::optional<double> ttft_s,
                           std::optional<double> ttit_s);

}  // namespace godwit::plan
