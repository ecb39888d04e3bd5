#include "engine/memory_plan.h"

#include <algorithm>

namespace godwit {
namespace {

uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

Result<MemoryPlan> plan_memory(const MemoryRequest& request, const ModelConfig& config,
                               std::span<const KvFormat> formats, const std::string& label) {
  if (request.context_tokens > config.context_length)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: a context of {} tokens was asked for, but the model was made for {}", label,
                  request.context_tokens, config.context_length);
  const auto here = static_cast<uint64_t>(request.ranks_here);
  const uint64_t fixed = request.weight_bytes + here * request.workspace_bytes;
  const uint64_t usable = request.memory_bytes / 10 * 9;
  if (request.memory_bytes > 0 && fixed >= usable)
    return errorf(
        ErrorCode::kExhausted,
        "{}: the weights take {} and the workspace {}, but only {} of the {} that are available may be used; free "
        "memory or take a smaller or more strongly quantized model",
        label, bytes_text(request.weight_bytes), bytes_text(here * request.workspace_bytes), bytes_text(usable),
        bytes_text(request.memory_bytes));
  GODWIT_CHECK(formats.size() == 1 || formats.size() == config.layers.size());
  const uint64_t heads = config.layers.size() / formats.size() * static_cast<uint64_t>(config.kv_heads);
  uint64_t column = 0;
  for (const KvFormat& format : formats) column += heads * format.page_bytes();
  const auto page_tokens = static_cast<uint64_t>(formats[0].page_tokens);
  auto layer_bytes = [&](const KvFormat& format, int64_t tokens) {
    const uint64_t slots = request.residence.most_slots(static_cast<uint64_t>(tokens));
    const auto step = static_cast<uint64_t>(request.chunk_tokens);
    uint64_t kept = slots;
    if (const auto round = kSegmentPages * static_cast<uint64_t>(request.ranks); request.ranks > 1) {
      const uint64_t pages = (slots + page_tokens - 1) / page_tokens;
      kept = std::min(pages, (pages + round - 1) / round * kSegmentPages) * page_tokens;
    }
    if (format.demotes)
      return saturating_product(heads, format.most_bytes_demoting(static_cast<size_t>(tokens), slots));
    if (request.residence.whole()) return saturating_product(heads, format.most_bytes(kept, step));
    // Where entries are dropped, each head may have a page that is not full, and positions beside every page.
    const uint64_t pages = (slots + 2 * page_tokens - 1) / page_tokens + (format.seals ? step / page_tokens + 2 : 0);
    return saturating_product(heads, format.most_bytes(slots + page_tokens, step) + pages * format.aux_bytes());
  };
  auto sequence_bytes = [&](int64_t tokens) {
    uint64_t bytes = 0;
    for (const KvFormat& format : formats)
      if (__builtin_add_overflow(bytes, layer_bytes(format, tokens), &bytes)) return UINT64_MAX;
    return bytes;
  };
  const int64_t wanted = request.context_tokens > 0 ? request.context_tokens : config.context_length;
  const uint64_t free = request.memory_bytes > 0 ? (usable - fixed) / here : UINT64_MAX / 4;

  uint64_t budget = request.kv_budget_bytes;
  if (budget > free)
    return errorf(ErrorCode::kExhausted, "{}: a KV budget of {} was asked for, but weights and workspace leave only {}",
                  label, bytes_text(budget), bytes_text(free));
  if (budget == 0) {
    constexpr uint64_t kMostSequences = 16;
    budget = std::min(std::max(free / 2, std::min(sequence_bytes(wanted), free)),
                      saturating_product(kMostSequences, sequence_bytes(wanted)));
  }
  int64_t fits = 0;  // the longest sequence that the budget holds
  for (int64_t beyond = int64_t{INT32_MAX} + 1; beyond - fits > 1;) {
    const int64_t middle = fits + (beyond - fits) / 2;
    (sequence_bytes(middle) <= budget ? fits : beyond) = middle;
  }
  if (fits < wanted && (request.context_tokens > 0 || fits < static_cast<int64_t>(page_tokens)))
    return errorf(ErrorCode::kExhausted,
                  "{}: {} tokens need {} of KV memory, but the budget is {}, which holds {} tokens; ask for a shorter "
                  "context, a larger budget or a smaller KV codec",
                  label, wanted, bytes_text(sequence_bytes(wanted)), bytes_text(budget), fits);
  return MemoryPlan{std::min(wanted, fits), budget, column};
}

}  // namespace godwit
