#include "kv/slot_stats.h"

namespace godwit {

Status ensure_bytes(Backend& backend, Buffer& buffer, size_t bytes) {
  if (buffer.bytes >= bytes) return {};
  GODWIT_ASSIGN(buffer, backend.allocate(bytes));
  return {};
}

Result<KvSlotStats> observe_plan(Backend& backend, const AttentionArgs& args, const ObserveWants& wants,
                                 Buffer& scratch) {
  const auto pages = static_cast<int64_t>(args.plan->pages.size()), tokens = int64_t{args.format.page_tokens};
  const auto count = static_cast<size_t>(pages * tokens);
  KvSlotStats stats;
  if (count == 0) return stats;
  constexpr size_t kMostOutputs = 6;
  static_assert(sizeof(float) == sizeof(int32_t));
  GODWIT_TRY(ensure_bytes(backend, scratch, kMostOutputs * count * sizeof(float)));

  std::byte* next = scratch.data();
  auto output = [&](bool wanted, DType type) {
    if (!wanted) return Tensor();
    Tensor tensor(next, type, {pages, tokens});
    next += tensor.bytes();
    return tensor;
  };
  ObserveArgs observed{.attention = args,
                       .use_factor = wants.use_factor,
                       .mass = output(true, DType::kF32),
                       .square = output(wants.square, DType::kF32),
                       .uses = output(wants.uses, DType::kI32),
                       .first_use = output(wants.recurrence, DType::kI32),
                       .last_use = output(wants.recurrence, DType::kI32),
                       .longest_gap = output(wants.recurrence, DType::kI32)};
  backend.observe(observed);
  auto fetch = [&](const Tensor& from, auto& to) {
    if (!from) return;
    to.resize(count);
    backend.download(std::as_writable_bytes(std::span(to)), from.data);
  };
  fetch(observed.mass, stats.mass);
  fetch(observed.square, stats.square);
  fetch(observed.uses, stats.uses);
  fetch(observed.first_use, stats.first_use);
  fetch(observed.last_use, stats.last_use);
  fetch(observed.longest_gap, stats.longest_gap);
  return stats;
}

}  // namespace godwit
