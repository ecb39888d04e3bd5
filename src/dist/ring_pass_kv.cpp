// pass-KV: rounds of segments come by, in the order of positions.
#include <algorithm>
#include <cstring>

#include "dist/ring_attention.h"

namespace godwit::dist {

// What is old may leave before the step's tokens have arrived; see is_old().
std::vector<Stretch> RingAttention::rounds_of(const LayerCall& call) const {
  const int32_t first = first_segment(call), end = end_segment();
  std::vector<Stretch> rounds;
  for (int32_t begin = first; begin < end; begin += own_shards().ranks())
    rounds.push_back({begin, std::min(end, begin + own_shards().ranks())});
  return rounds;
}

RingAttention::PageCount RingAttention::pages_kept(int keeper, Stretch round) const {
  PageCount count;
  for (int32_t segment = round.begin; segment < round.end; ++segment) {
    if (own_shards().keeper(segment) != keeper) continue;
    const int32_t first = first_page(segment),
                  end = first + static_cast<int32_t>(pages_of(segment_tokens_now(segment)));
    for (int32_t page = first; page < end; ++page) {
      const PageForms forms = forms_of(page);
      count.sealed += forms.sealed ? kv_heads() : 0;
      count.open += forms.open ? kv_heads() : 0;
    }
  }
  return count;
}

// One message from each keeper to each reader: sealed pages and then open ones, or the numbers of pages where the
// reader shares the keeper's memory.
void RingAttention::post_round(const LayerCall& call, Stretch round, size_t index) {
  Half& half = halves_[index % 2];
  const auto message_bytes = [&](const PageCount& count, bool shared) {
    return shared ? count.sealed * sizeof(PageId) : bytes_of(count, call.layer);
  };
  for (int keeper = 0; keeper < ranks(); ++keeper) {
    const size_t bytes = message_bytes(pages_kept(keeper, round), shared_.reads(me(), keeper));
    if (bytes > 0 && keeper != me() && !rows(me()).empty())
      transport_.receive(keeper, half.in[static_cast<size_t>(keeper)], FrameKind::kPages, bytes, half.pending);
  }
  const PageCount count = pages_kept(me(), round);
  const size_t near_bytes = message_bytes(count, true), far_bytes = message_bytes(count, false);
  if (far_bytes == 0) return;
  std::vector<int> near, far;
  for (int reader : now_->readers) (shared_.reads(reader, me()) ? near : far).push_back(reader);
  std::byte* ids = near.empty() ? nullptr : half.out_ids.payload(near_bytes).data();
  std::byte* sealed = far.empty() ? nullptr : half.out.payload(far_bytes).data();
  std::byte* open = far.empty() ? nullptr : sealed + count.sealed * page_bytes(call.layer);
  for (int32_t segment = round.begin; segment < round.end; ++segment) {
    if (own_shards().keeper(segment) != me()) continue;
    const SegmentPages kept = kept_segment(call.layer, segment);
    for (size_t i = 0; i < kept.pages.size(); ++i) {
      const PageId page = kept.pages[i].page, earlier = kept.earlier.empty() ? page : kept.earlier[i];
      if (ids != nullptr) ids = std::copy_n(reinterpret_cast<const std::byte*>(&page), sizeof(PageId), ids);
      if (far.empty()) continue;
      const PageForms forms = forms_of(first_page(segment) + static_cast<int32_t>(i % kept.pages_per_head));
      if (forms.sealed) {
        backend_.download({sealed, page_bytes(call.layer)}, kept.slab + page_index(page) * page_bytes(call.layer));
        sealed += page_bytes(call.layer);
      }
      if (forms.open) {
        backend_.download({open, open_page_bytes()}, kept.open_slab + page_index(earlier) * open_page_bytes());
        open += open_page_bytes();
      }
    }
  }
  transport_.send(near, half.out_ids, FrameKind::kPages, near_bytes, half.pending);
  transport_.send(far, half.out, FrameKind::kPages, far_bytes, half.pending);
}

// Another rank's segment of a round in which it keeps no other.
SegmentPages RingAttention::foreign_segment(int layer, int32_t segment, Frame& frame) {
  const int keeper = own_shards().keeper(segment);
  const auto place = static_cast<size_t>(keeper);
  const int32_t tokens = segment_tokens_now(segment), page_tokens = pool_.format().page_tokens;
  SegmentPages found{nullptr, nullptr, {}, pages_of(tokens)};
  PageCount count;
  bool both = false;
  for (size_t i = 0; i < kv_heads() * found.pages_per_head; ++i) {
    const auto ordinal = static_cast<int32_t>(i % found.pages_per_head);
    const PageForms forms = forms_of(first_page(segment) + ordinal);
    const auto sealed = static_cast<PageId>(count.sealed), open = static_cast<PageId>(count.open) | kOpenPage;
    found.pages.push_back({.page = forms.sealed ? sealed : open,
                           .ordinal = static_cast<uint32_t>(ordinal),
                           .first_position = segment * shards_.segment_tokens() + ordinal * page_tokens,
                           .count = static_cast<uint32_t>(std::min(page_tokens, tokens - ordinal * page_tokens))});
    found.earlier.push_back(forms.open ? open : sealed);
    count.sealed += forms.sealed ? 1 : 0;
    count.open += forms.open ? 1 : 0;
    both = both || (forms.sealed && forms.open);
  }
  if (!both) found.earlier.clear();
  if (shared_.reads(me(), keeper)) {
    const std::byte* from = frame.payload(count.sealed * sizeof(PageId)).data();
    for (size_t i = 0; i < count.sealed; ++i)
      std::memcpy(&found.pages[i].page, from + i * sizeof(PageId), sizeof(PageId));
    found.slab = shared_.base.get() + place * shared_.stride;
    return found;
  }
  const auto upload = [&](Buffer& buffer, size_t page_bytes, std::span<const std::byte> pages) {
    std::byte* to = buffer.data() + place * kSegmentPages * kv_heads() * page_bytes;
    if (!pages.empty()) backend_.upload(to, pages);
    return to;
  };
  const std::span<const std::byte> pages = frame.payload(bytes_of(count, layer));
  const size_t sealed_bytes = count.sealed * page_bytes(layer);
  found.slab = upload(staging_, page_bytes(layer), pages.first(sealed_bytes));
  if (open_page_bytes() > 0) found.open_slab = upload(open_staging_, open_page_bytes(), pages.subspan(sealed_bytes));
  return found;
}

Status RingAttention::pass_kv(const LayerCall& call, const std::vector<Stretch>& rounds, bool first_posted) {
  const int32_t row_count = size_of(rows(me()));
  const Rows mine{call.q, call.positions, spans_of(me(), 0, row_count)};
  const Tensor state = state_tensor(states(), row_count);
  const auto meet_for = [&](size_t i) { return i < rounds.size() && !is_old(rounds[i]) ? meet(call) : status(); };
  GODWIT_TRY(meet_for(0));
  if (!first_posted) post_round(call, rounds[0], 0);
  for (size_t i = 0; i < rounds.size(); ++i) {
    Half& half = halves_[i % 2];
    const Stretch round = rounds[i];
    GODWIT_TRY(transport_.wait(half.pending));
    GODWIT_TRY(meet_for(i + 1));
    if (options_.overlap && i + 1 < rounds.size()) post_round(call, rounds[i + 1], i + 1);
    for (int32_t segment = round.begin; row_count > 0 && segment < round.end; ++segment) {
      const int keeper = own_shards().keeper(segment);
      const SegmentPages pages = keeper == me()
                                     ? kept_segment(call.layer, segment)
                                     : foreign_segment(call.layer, segment, half.in[static_cast<size_t>(keeper)]);
      walk(call, mine, {segment, segment + 1}, pages, state, segment > rounds[0].begin);
    }
    if (!options_.overlap && i + 1 < rounds.size()) post_round(call, rounds[i + 1], i + 1);
  }
  if (row_count > 0) finish(call, {&state, 1}, call.partial);
  return {};
}

}  // namespace godwit::dist
