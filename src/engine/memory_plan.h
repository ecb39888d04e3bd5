// What fits: decides context length and KV budget before anything is loaded, or refuses with the numbers.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kv/budget.h"
#include "model/config.h"

namespace godwit {

struct MemoryRequest {
  uint64_t memory_bytes = 0;  // what the back-end can still get; 0: unknown
  int ranks = 1;              // over which a sequence's segments are spread, ...
  int ranks_here = 1;         // ... and how many of them share this memory, and one copy of the weights
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;
  int64_t context_tokens = 0;    // asked for; 0: as long as possible
  uint64_t kv_budget_bytes = 0;  // asked for; 0: derived
  int64_t chunk_tokens = 0;      // most tokens of a step
  KvResidence residence = {};    // what a sequence holds of its tokens
};

struct MemoryPlan {
  int64_t context_tokens = 0;
  uint64_t kv_budget_bytes = 0;
  uint64_t kv_bytes_per_page_column = 0;  // pages of all layers and heads that hold the same tokens
};

// Without a budget asked for, the KV memory may take half of what weights and workspace leave, or one longest sequence
// where that is more and fits into nine tenths. Without a context asked for, the model's own is shortened to fit.
// `formats` are those of the layers, or one of them all.
Result<MemoryPlan> plan_memory(const MemoryRequest& request, const ModelConfig& config,
                               std::span<const KvFormat> formats, const std::string& label);

std::string bytes_text(uint64_t bytes);  // "1.5 GiB"

}  // namespace godwit
