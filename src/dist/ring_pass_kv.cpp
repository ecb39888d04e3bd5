// pass-KV: rounds of segments come by, in the order of positions.
#include <algorithm>
#include <cstring>

#include "dist/ring_attention.h"

namespace godwit::dist {

// What is old may leave before the step's tokens have arrived (see is_old()), so no round is of both. The first is
// short: nobody has anything to do while it travels.
std::vector<Stretch> RingAttention::rounds_of(const LayerCall& call) const {
  const int32_t first = first_segment(call), end = end_segment(),
                fresh = std::clamp(shards_.segment_of(step().begin), first, end);
  std::vector<Stretch> rounds;
  int32_t segments = 1;  // of each keeper
  for (int32_t begin = first; begin < end; segments = std::min(2 * segments, round_segments_)) {
    const int32_t behind = std::min(begin < fresh ? fresh : end, begin + segments * own_shards().ranks());
    rounds.push_back({begin, behind});
    begin = behind;
  }
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
  Half& half = halves_[(half_ + index) % 2];
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

// A page of one rank, as a walk over this rank's view of all pages names it.
PageId RingAttention::among_all(PageId page, int keeper, int layer) const {
  if (shared_.base == nullptr) return page;
  const size_t rank_pages = shared_.stride / page_bytes(layer);
  GODWIT_CHECK(page < rank_pages, "rank {} keeps page {} of {}", keeper, page, rank_pages);
  return page + static_cast<PageId>(static_cast<size_t>(keeper) * rank_pages);
}

// Another rank's segment of a round, of which `taken` were before it: in spare pages, or where the keeper has it.
SegmentPages RingAttention::foreign_segment(int layer, int32_t segment, Frame& frame, PageCount& taken) {
  const int keeper = own_shards().keeper(segment);
  const bool near = shared_.reads(me(), keeper);
  const size_t first_spare = this->first_spare(keeper);
  const int32_t tokens = segment_tokens_now(segment), page_tokens = pool_.format().page_tokens;
  SegmentPages found{nullptr, nullptr, {}, pages_of(tokens)};
  bool both = false;
  for (size_t i = 0; i < kv_heads() * found.pages_per_head; ++i) {
    const auto ordinal = static_cast<int32_t>(i % found.pages_per_head);
    const PageForms forms = forms_of(first_page(segment) + ordinal);
    PageId sealed = pool_.spare_page(first_spare + taken.sealed, layer, false);
    if (near)
      std::memcpy(&sealed, frame.payload((taken.sealed + 1) * sizeof(PageId)).data() + taken.sealed * sizeof(PageId),
                  sizeof(PageId));
    sealed = among_all(sealed, near ? keeper : me(), layer);
    const PageId open = pool_.spare_page(first_spare + taken.open, layer, true);
    found.pages.push_back({.page = forms.sealed ? sealed : open,
                           .first_position = segment * shards_.segment_tokens() + ordinal * page_tokens,
                           .count = static_cast<uint32_t>(std::min(page_tokens, tokens - ordinal * page_tokens))});
    found.earlier.push_back(forms.open ? open : sealed);
    taken.sealed += forms.sealed ? 1 : 0;
    taken.open += forms.open ? 1 : 0;
    both = both || (forms.sealed && forms.open);
  }
  if (!both) found.earlier.clear();
  return found;
}

// All segments of a round as one list of pages; what came in messages is put into spare pages.
SegmentPages RingAttention::round_pages(int layer, Stretch round, Half& half) {
  for (int keeper = 0; keeper < ranks(); ++keeper) {
    const PageCount count = pages_kept(keeper, round);
    if (keeper == me() || shared_.reads(me(), keeper) || count.sealed + count.open == 0) continue;
    const size_t first_spare = this->first_spare(keeper);
    std::span<const std::byte> rest = half.in[static_cast<size_t>(keeper)].payload(bytes_of(count, layer));
    const auto put = [&](bool open, std::byte* slab, size_t pages) {
      const size_t size = pool_.page_bytes(layer, open);
      if (pages == 0) return;
      backend_.upload(slab + page_index(pool_.spare_page(first_spare, layer, open)) * size, rest.first(pages * size));
      rest = rest.subspan(pages * size);
    };
    put(false, pool_.slab(layer), count.sealed);
    put(true, pool_.open_slab(), count.open);
  }
  std::vector<SegmentPages> segments;
  std::vector<PageCount> taken(static_cast<size_t>(ranks()));
  SegmentPages all{shared_.base ? shared_.base.get() : pool_.slab(layer), pool_.open_slab(), {}, 0};
  bool both = false;
  for (int32_t segment = round.begin; segment < round.end; ++segment) {
    const int keeper = own_shards().keeper(segment);
    const auto at = static_cast<size_t>(keeper);
    segments.push_back(keeper == me() ? kept_segment(layer, segment)
                                      : foreign_segment(layer, segment, half.in[at], taken[at]));
    if (keeper == me())
      for (PageRef& ref : segments.back().pages) ref.page = among_all(ref.page, keeper, layer);
    all.pages_per_head += segments.back().pages_per_head;
    both = both || !segments.back().earlier.empty();
  }
  for (size_t head = 0; head < kv_heads(); ++head)
    for (size_t i = 0; i < segments.size(); ++i) {
      const SegmentPages& segment = segments[i];
      for (size_t page = 0; page < segment.pages_per_head; ++page) {
        const size_t at = head * segment.pages_per_head + page;
        PageRef& ref = all.pages.emplace_back(segment.pages[at]);
        ref.ordinal = static_cast<uint32_t>(i * kSegmentPages + page);
        if (both) all.earlier.push_back(segment.earlier.empty() ? ref.page : segment.earlier[at]);
      }
    }
  return all;
}

// The first round of the first part may leave before anything else of a layer.
void RingAttention::post_first(const LayerCall& call, size_t index) {
  now_ = &*std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return passes_kv(part); });
  const Stretch round = rounds_of(call)[0];
  posted_ = options_.overlap && is_old(round);
  posted_for_ = {call.layer, call.window};
  if (posted_) post_round(call, round, index);
}

// ... even before that layer begins, so that ranks that are ahead have something to do until the others get there.
// Pages that are to be sealed are not what they will be then.
void RingAttention::post_ahead(const LayerCall& call, size_t index) {
  const auto next = static_cast<size_t>(call.layer) + 1;
  if (next == windows_.size() || windows_[next] == kUnknownWindow || pool_.format().seals) return;
  const Part* now = now_;
  LayerCall ahead;
  ahead.layer = static_cast<int>(next);
  ahead.window = windows_[next];
  post_first(ahead, index);
  now_ = now;
}

Status RingAttention::pass_kv(const LayerCall& call, const std::vector<Stretch>& rounds) {
  const int32_t row_count = size_of(rows(me()));
  const Rows mine{call.q, call.positions, spans_of(me(), 0, row_count)};
  const Tensor state = state_tensor(states(), row_count);
  const size_t count = rounds.size();
  const bool last = std::none_of(parts_.begin() + (now_ - parts_.data()) + 1, parts_.end(),
                                 [&](const Part& part) { return passes_kv(part); });
  const auto meet_for = [&](size_t i) { return i < count && !is_old(rounds[i]) ? meet(call) : status(); };
  GODWIT_TRY(meet_for(0));
  if (!std::exchange(posted_, false)) post_round(call, rounds[0], 0);
  for (size_t i = 0; i < count; ++i) {
    Half& half = halves_[(half_ + i) % 2];
    GODWIT_TRY(transport_.wait(half.pending));
    GODWIT_TRY(meet_for(i + 1));
    if (options_.overlap && i + 1 < count) post_round(call, rounds[i + 1], i + 1);
    if (options_.overlap && i + 1 == count && last) post_ahead(call, count);
    if (row_count > 0) walk(call, mine, rounds[i], round_pages(call.layer, rounds[i], half), state, i > 0);
    if (!options_.overlap && i + 1 < count) post_round(call, rounds[i + 1], i + 1);
  }
  half_ = (half_ + count) % 2;
  if (row_count > 0) finish(call, {&state, 1}, call.partial);
  return {};
}

}  // namespace godwit::dist
