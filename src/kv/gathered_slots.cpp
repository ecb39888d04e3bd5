#include "kv/gathered_slots.h"

#include <algorithm>
#include <cstring>

namespace godwit {
namespace {

template <class T>
std::vector<T> numbers_in(std::span<const std::byte> bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

}  // namespace

Result<GatheredSlots> GatheredSlots::gather(const KvSequence& sequence, KvPeers* peers) {
  GatheredSlots gathered;
  gathered.peers_ = peers;
  const KvShape& shape = sequence.shape();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      std::vector<int32_t>& own = gathered.positions_.emplace_back();
      for (size_t i = sequence.demoted(layer, head); i < sequence.slots(layer, head); ++i)
        own.push_back(sequence.position(layer, head, i));
    }
  }
  if (peers == nullptr) return gathered;

  // Of each head the number of slots and their positions.
  std::vector<int32_t> told;
  for (const std::vector<int32_t>& own : gathered.positions_) {
    told.push_back(static_cast<int32_t>(own.size()));
    told.insert(told.end(), own.begin(), own.end());
  }
  std::vector<std::vector<std::byte>> all;
  GODWIT_TRY(peers->gather({}, std::as_bytes(std::span(told)), all));
  gathered.rank_ = static_cast<uint32_t>(peers->rank());
  std::vector<std::vector<int32_t>> lists;
  for (const auto& bytes : all) lists.push_back(numbers_in<int32_t>(bytes));
  std::vector<size_t> at(lists.size());
  for (std::vector<int32_t>& positions : gathered.positions_) {
    std::vector<std::pair<int32_t, Place>> slots;
    for (uint32_t rank = 0; rank < lists.size(); ++rank) {
      const std::vector<int32_t>& list = lists[rank];
      if (at[rank] >= list.size() || list[at[rank]] < 0 ||
          static_cast<size_t>(list[at[rank]]) > list.size() - at[rank] - 1)
        return errorf(ErrorCode::kBadData, "rank {} told of its KV entries what makes no sense", rank);
      const auto count = static_cast<uint32_t>(list[at[rank]++]);
      for (uint32_t slot = 0; slot < count; ++slot) slots.push_back({list[at[rank]++], {rank, slot}});
    }
    std::sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    positions.clear();
    std::vector<Place>& places = gathered.places_.emplace_back();
    for (const auto& [position, place] : slots) {
      positions.push_back(position);
      places.push_back(place);
    }
  }
  return gathered;
}

std::vector<uint32_t> GatheredSlots::own(size_t head, std::span<const uint32_t> kept) const {
  if (peers_ == nullptr) return {kept.begin(), kept.end()};
  std::vector<uint32_t> here;
  for (uint32_t slot : kept)
    if (is_own(head, slot)) here.push_back(places_[head][slot].slot);
  return here;
}

Status GatheredSlots::spread(size_t first, size_t width, const Status& well,
                             std::span<std::vector<float>> numbers) const {
  if (peers_ == nullptr) return well;
  std::vector<float> told;
  for (const std::vector<float>& own : numbers) told.insert(told.end(), own.begin(), own.end());
  std::vector<std::vector<std::byte>> all;
  GODWIT_TRY(peers_->gather(well, std::as_bytes(std::span(told)), all));
  std::vector<std::vector<float>> lists;
  for (const auto& bytes : all) lists.push_back(numbers_in<float>(bytes));
  std::vector<size_t> begins(lists.size());  // of a head in each list
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::vector<size_t> ends = begins;
    numbers[i].clear();
    for (const Place& place : places_[first + i]) {
      const std::vector<float>& list = lists[place.rank];
      const size_t at = begins[place.rank] + place.slot * width;
      if (list.size() < at + width)
        return errorf(ErrorCode::kBadData, "rank {} told of {} numbers of its KV entries, too few", place.rank,
                      list.size());
      const auto from = list.begin() + static_cast<ptrdiff_t>(at);
      numbers[i].insert(numbers[i].end(), from, from + static_cast<ptrdiff_t>(width));
      ends[place.rank] = at + width;  // slots of a rank come in order
    }
    begins = std::move(ends);
  }
  return {};
}

}  // namespace godwit
