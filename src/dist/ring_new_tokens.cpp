// New K and V: from the ranks that compute them to those that keep them, and into sealed pages when it is their turn.
#include <algorithm>

#include "dist/ring_attention.h"

namespace godwit::dist {

void RingAttention::send_new(const LayerCall& call) {
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  const size_t row_slots = kv_heads(), page_bytes = new_format(call.layer).page_bytes();
  std::vector<KvSlot> slots(static_cast<size_t>(call.k.shape[0]) * row_slots);
  std::vector<PageId> first(static_cast<size_t>(ranks()));
  PageId next_page = 0;
  for (int keeper = 0; keeper < ranks(); ++keeper) {
    first[static_cast<size_t>(keeper)] = next_page;
    uint32_t count = 0;
    for (const Piece& piece : pieces(me())) {
      if (piece.keeper != keeper) continue;
      for (int32_t i = 0; i < piece.positions.size(); ++i, ++count)
        for (size_t head = 0; head < row_slots; ++head)
          slots[static_cast<size_t>(piece.row_begin + i) * row_slots + head] = {
              next_page + static_cast<PageId>(count / page_tokens * row_slots + head), count % page_tokens};
    }
    next_page += static_cast<PageId>(pages_of(static_cast<int32_t>(count)) * row_slots);
  }
  for (const Stretch& run : sent_rows_)
    backend_.kv_write({.format = new_format(call.layer),
                       .slab = outbox_.data(),
                       .slots = std::span(slots).subspan(static_cast<size_t>(run.begin) * row_slots,
                                                         static_cast<size_t>(run.size()) * row_slots),
                       .k = call.k.slice(run.begin, run.end),
                       .v = call.v.slice(run.begin, run.end)});

  auto bytes_between = [&](int from, int to) {
    int32_t count = 0;
    for (const Piece& piece : pieces(from))
      if (piece.keeper == to) count += piece.positions.size();
    return pages_of(count) * row_slots * page_bytes;
  };
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == me()) continue;
    const auto at = static_cast<size_t>(peer);
    if (const size_t bytes = bytes_between(peer, me()); bytes > 0)
      transport_.receive(peer, new_in_[at], FrameKind::kSlots, bytes, new_pending_);
    if (const size_t bytes = bytes_between(me(), peer); bytes > 0) {
      backend_.download(new_out_[at].payload(bytes), outbox_.data() + first[at] * page_bytes);
      transport_.send({&peer, 1}, new_out_[at], FrameKind::kSlots, bytes, new_pending_);
    }
  }
  place_new(call, me(), outbox_.data(), first[static_cast<size_t>(me())]);
}

Status RingAttention::take_new(const LayerCall& call) {
  GODWIT_TRY(transport_.wait(new_pending_));
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == me()) continue;
    int32_t count = 0;
    for (const Piece& piece : pieces(peer))
      if (piece.keeper == me()) count += piece.positions.size();
    if (count == 0) continue;
    const size_t bytes = pages_of(count) * kv_heads() * new_format(call.layer).page_bytes();
    backend_.upload(inbox_.data(), new_in_[static_cast<size_t>(peer)].payload(bytes));
    place_new(call, peer, inbox_.data(), 0);
  }
  return {};
}

template <class Each>
void RingAttention::each_place(int layer, Stretch positions, const Each& each) const {
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  const KvSequence& sequence = *now_->what.sequence;
  if (now_->what.compact) {
    std::vector<PageRef> refs;
    for (int head = 0; head < shape_.kv_heads; ++head)
      for (int32_t position = positions.begin; position < positions.end; ++position) {
        const size_t slot = sequence.slots_before(layer, head, position);
        refs.clear();
        sequence.list_pages(layer, head, slot / page_tokens, slot / page_tokens + 1, refs);
        each(static_cast<uint32_t>(position - positions.begin), static_cast<size_t>(head),
             KvSlot{refs[0].page, static_cast<uint32_t>(slot % page_tokens)});
      }
    return;
  }
  const int32_t segment = shards_.segment_of(positions.begin);
  const SegmentPages pages = kept_segment(layer, segment);
  for (int32_t position = positions.begin; position < positions.end; ++position) {
    const auto offset = static_cast<uint32_t>(position - segment * shards_.segment_tokens());
    for (size_t head = 0; head < kv_heads(); ++head) {
      const size_t at = head * pages.pages_per_head + offset / page_tokens;
      each(static_cast<uint32_t>(position - positions.begin), head,
           KvSlot{pages.earlier.empty() ? pages.pages[at].page : pages.earlier[at], offset % page_tokens});
    }
  }
}

// From pages packed as send_new() packs them into the sequence's own.
void RingAttention::place_new(const LayerCall& call, int from, const std::byte* slab, PageId first_page) {
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  std::vector<KvMove> moves;
  uint32_t count = 0;
  for (const Piece& piece : pieces(from)) {
    if (piece.keeper != me()) continue;
    now_ = &parts_[piece.part];
    each_place(call.layer, piece.positions, [&](uint32_t i, size_t head, const KvSlot& to) {
      const uint32_t at = count + i;
      moves.push_back({{first_page + static_cast<PageId>(at / page_tokens * kv_heads() + head), at % page_tokens}, to});
    });
    count += static_cast<uint32_t>(piece.positions.size());
  }
  std::byte* own = format(call.layer).seals ? pool_.open_slab() : pool_.slab(call.layer);
  if (!moves.empty()) backend_.kv_move(new_format(call.layer), own, slab, moves);
}

void RingAttention::seal(const LayerCall& call, bool complete_before) {
  const KvFormat& format = this->format(call.layer);
  if (!format.seals) return;
  // Of the pages that have both forms, those whose turn it is; there may be room for later steps.
  const auto turn = [&](int32_t position) {
    return static_cast<int32_t>(format.sealed_end(static_cast<size_t>(position)));
  };
  seals_.clear();
  for (const Part& part : parts_) {
    const Stretch& step = part.what.step;
    const Stretch pages{turn(step.begin), turn(step.end)};
    std::vector<KvSeal> all;
    part.what.sequence->list_seals(call.layer, all);
    for (const KvSeal& seal : all) {
      const int32_t page = pool_.first_position(seal.open) / format.page_tokens;
      const bool complete = (page + 1) * format.page_tokens <= step.begin;
      if (page >= pages.begin && page < pages.end && complete == complete_before) seals_.push_back(seal);
    }
  }
  if (!seals_.empty())
    backend_.kv_seal(
        {.format = format, .open_slab = pool_.open_slab(), .slab = pool_.slab(call.layer), .pages = seals_});
}

}  // namespace godwit::dist
