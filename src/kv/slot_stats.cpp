#include "kv/slot_stats.h"

#include <bit>

namespace godwit {

Status ensure_bytes(Backend& backend, Buffer& buffer, size_t bytes) {
  if (buffer.bytes >= bytes) return {};
  GODWIT_ASSIGN(buffer, backend.allocate(bytes));
  return {};
}

std::vector<float> KvStatsFields::pack(const KvSlotStats& stats) const {
  std::vector<float> numbers;
  const auto add = [&](float number) { numbers.push_back(number); };
  const auto add_whole = [&](int32_t number) { numbers.push_back(std::bit_cast<float>(number)); };
  for (size_t i = 0; i < stats.mass.size(); ++i) {
    add(stats.mass[i]);
    if (window) add(stats.square[i]), add_whole(stats.uses[i]);
    if (recurrence) add_whole(stats.last_use[i]), add_whole(stats.longest_gap[i]);
  }
  return numbers;
}

KvSlotStats KvStatsFields::unpack(std::span<const float> numbers) const {
  KvSlotStats stats;
  const auto whole = [&](size_t i) { return std::bit_cast<int32_t>(numbers[i]); };
  for (size_t i = 0; i < numbers.size(); i += width()) {
    size_t at = i;
    stats.mass.push_back(numbers[at++]);
    if (window) stats.square.push_back(numbers[at++]), stats.uses.push_back(whole(at++));
    if (recurrence) stats.last_use.push_back(whole(at++)), stats.longest_gap.push_back(whole(at++));
  }
  return stats;
}

void list_tile(const KvSequence& sequence, int layer, int head, int32_t rows, AttentionPlan& plan) {
  AttentionTile tile{.row_begin = 0, .row_end = rows, .kv_head = head};
  tile.page_begin = static_cast<uint32_t>(plan.pages.size());
  sequence.list_pages(layer, head, 0, sequence.pages(layer, head), plan.pages);
  tile.page_end = static_cast<uint32_t>(plan.pages.size());
  plan.tiles.push_back(tile);
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
                       .seen_elsewhere = wants.seen_elsewhere,
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
