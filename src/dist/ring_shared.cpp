// Ranks that all see each other's pages: K and V of new tokens are written where they are kept, and read there.
//
// A rank tells the others that it has written what is new of a layer, attends to what was there before the step, and
// only then waits to hear the same from them. So ranks may be apart by that much of a layer's work before one of them
// waits, and one that is slow for a moment holds nobody up.
#include <algorithm>
#include <cstring>

#include "dist/ring_attention.h"

namespace godwit::dist {

// Where pages are does not change within a step, so that all layers' are told at its beginning: those that a rank keeps
// of each part, layer by layer, segments in order, [head][page].
void RingAttention::post_places() {
  const auto count = static_cast<size_t>(ranks());
  std::vector<size_t> ids(count);
  for (Part& part : parts_) {
    if (!is_shared(part)) continue;
    now_ = &part;
    for (size_t keeper = 0; keeper < count; ++keeper) {
      const size_t of_layer = pages_kept(static_cast<int>(keeper), {0, end_segment()}).sealed;
      part.places.push_back({ids[keeper], of_layer});
      ids[keeper] += of_layer * static_cast<size_t>(shape_.layers);
    }
  }
  const auto self = static_cast<size_t>(me());
  std::byte* to = places_[self].payload(ids[self] * sizeof(PageId)).data();
  for (const Part& part : parts_) {
    if (!is_shared(part)) continue;
    now_ = &part;
    for (int layer = 0; layer < shape_.layers; ++layer)
      for (int32_t segment = 0; segment < end_segment(); ++segment) {
        if (own_shards().keeper(segment) != me()) continue;
        for (const PageRef& ref : kept_segment(layer, segment).pages)
          to = std::copy_n(reinterpret_cast<const std::byte*>(&ref.page), sizeof(PageId), to);
      }
  }
  if (ids[self] > 0)
    transport_.send(tellers_, places_[self], FrameKind::kPages, ids[self] * sizeof(PageId), pending_places_);
  if (!tells_) return;
  for (size_t keeper = 0; keeper < count; ++keeper)
    if (keeper != self && ids[keeper] > 0)
      transport_.receive(static_cast<int>(keeper), places_[keeper], FrameKind::kPages, ids[keeper] * sizeof(PageId),
                         pending_places_);
}

// Of the pages of all ranks, which follow one another in memory.
PageId RingAttention::shared_page(int layer, int32_t segment, size_t head, size_t page) {
  const auto keeper = static_cast<size_t>(own_shards().keeper(segment));
  const Places& places = now_->places[keeper];
  const size_t whole = static_cast<size_t>(segment / own_shards().ranks()) * kSegmentPages * kv_heads();
  const size_t at = places.first + static_cast<size_t>(layer) * places.of_layer + whole +
                    head * pages_of(segment_tokens_now(segment)) + page;
  PageId id = 0;
  std::memcpy(&id, places_[keeper].payload((at + 1) * sizeof(PageId)).data() + at * sizeof(PageId), sizeof(PageId));
  const size_t rank_pages = shared_.stride / page_bytes(layer);
  GODWIT_CHECK(id < rank_pages, "rank {} keeps page {} of {}", keeper, id, rank_pages);
  return id + static_cast<PageId>(keeper * rank_pages);
}

Status RingAttention::write_shared(const LayerCall& call) {
  GODWIT_TRY(transport_.wait(pending_places_));
  const int32_t page_tokens = pool_.format().page_tokens;
  for (const Part& part : parts_) {
    if (!is_shared(part)) continue;
    now_ = &part;
    std::vector<KvSlot> slots;
    for (const Stretch& run : rows(me()))
      for (int32_t position = run.begin; position < run.end; ++position) {
        const int32_t segment = shards_.segment_of(position), offset = position - segment * shards_.segment_tokens();
        for (size_t head = 0; head < kv_heads(); ++head)
          slots.push_back({shared_page(call.layer, segment, head, static_cast<size_t>(offset / page_tokens)),
                           static_cast<uint32_t>(offset % page_tokens)});
      }
    const LayerCall own = own_call(call);
    if (!slots.empty())
      backend_.kv_write(
          {.format = format(call.layer), .slab = shared_.base.get(), .slots = slots, .k = own.k, .v = own.v});
  }
  if (!tells_) return {};
  for (int peer : tellers_)
    transport_.receive(peer, written_in_[static_cast<size_t>(peer)], FrameKind::kSlots, 0, pending_written_);
  transport_.send(tellers_, written_out_, FrameKind::kSlots, 0, pending_written_);
  return {};
}

// Segments as one list of pages.
SegmentPages RingAttention::shared_segments(int layer, Stretch segments) {
  SegmentPages found{shared_.base.get(), nullptr, {}, 0};
  const int32_t page_tokens = pool_.format().page_tokens;
  for (int32_t segment = segments.begin; segment < segments.end; ++segment)
    found.pages_per_head += pages_of(segment_tokens_now(segment));
  for (size_t head = 0; head < kv_heads(); ++head)
    for (int32_t segment = segments.begin; segment < segments.end; ++segment) {
      const int32_t tokens = segment_tokens_now(segment), first = segment - segments.begin;
      for (size_t page = 0; page < pages_of(tokens); ++page) {
        const int32_t begin = static_cast<int32_t>(page) * page_tokens;
        found.pages.push_back({.page = shared_page(layer, segment, head, page),
                               .ordinal = static_cast<uint32_t>(first) * kSegmentPages + static_cast<uint32_t>(page),
                               .first_position = segment * shards_.segment_tokens() + begin,
                               .count = static_cast<uint32_t>(std::min(page_tokens, tokens - begin))});
      }
    }
  return found;
}

// What was there before the step, or, with the segment that it begins in, what is new.
void RingAttention::walk_shared(const LayerCall& call, bool fresh) {
  for (const Part& part : parts_) {
    if (!is_shared(part)) continue;
    now_ = &part;
    const int32_t row_count = size_of(rows(me()));
    if (row_count == 0) continue;
    const LayerCall own = own_call(call);
    const int32_t first = first_segment(call), end = end_segment(),
                  middle = std::clamp(shards_.segment_of(step().begin), first, end);
    const Stretch segments = fresh ? Stretch{middle, end} : Stretch{first, middle};
    const Tensor state = state_tensor(state_.data() + state_bytes(part.row_begin), row_count);
    if (segments.size() > 0)
      walk(own, {own.q, own.positions, spans_of(me(), 0, row_count)}, segments, shared_segments(call.layer, segments),
           state, fresh && middle > first);
    if (fresh) finish(own, {&state, 1}, own.partial);
  }
}

}  // namespace godwit::dist
