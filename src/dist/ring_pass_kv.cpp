// pass-KV: rounds of segments come by, in the order of positions.
#include <algorithm>
#include <cstring>

#include "dist/ring_attention.h"

namespace godwit::dist {

// What is old may leave before the step's tokens have arrived; see is_old().
std::vector<Stretch> RingAttention::rounds_of(const LayerCall& call) const {
  const int32_t first = first_segment(call), end = end_segment();
  std::vector<Stretch> rounds;
  if (shared_.everybody_reads_all()) {
    const int32_t fresh = std::clamp(shards_.segment_of(step().begin), first, end);
    for (const Stretch& round : {Stretch{first, fresh}, Stretch{fresh, end}})
      if (round.size() > 0) rounds.push_back(round);
    return rounds;
  }
  for (int32_t begin = first; begin < end; begin += ranks()) rounds.push_back({begin, std::min(end, begin + ranks())});
  return rounds;
}

size_t RingAttention::pages_kept(int keeper, Stretch round) const {
  size_t count = 0;
  for (int32_t segment = round.begin; segment < round.end; ++segment)
    if (own_shards().keeper(segment) == keeper) count += pages_of(segment_tokens_now(segment)) * kv_heads();
  return count;
}

// One message from each keeper to each reader: pages, or their numbers where the reader shares the keeper's memory.
void RingAttention::post_round(const LayerCall& call, Stretch round, size_t index) {
  Half& half = halves_[index % 2];
  for (int keeper = 0; keeper < ranks(); ++keeper)
    if (const size_t count = pages_kept(keeper, round); count > 0 && keeper != me() && !rows(me()).empty())
      transport_.receive(keeper, half.in[static_cast<size_t>(keeper)], FrameKind::kPages,
                         count * (shared_.reads(me(), keeper) ? sizeof(PageId) : page_bytes()), half.pending);
  const size_t count = pages_kept(me(), round);
  std::vector<int> near, far;
  for (int reader : now_->readers) (shared_.reads(reader, me()) ? near : far).push_back(reader);
  std::byte* ids = near.empty() ? nullptr : half.out_ids.payload(count * sizeof(PageId)).data();
  std::byte* pages = far.empty() ? nullptr : half.out.payload(count * page_bytes()).data();
  for (int32_t segment = round.begin; segment < round.end; ++segment) {
    if (own_shards().keeper(segment) != me()) continue;
    const SegmentPages kept = kept_segment(call.layer, segment);
    for (const PageRef& ref : kept.pages) {
      if (ids != nullptr) ids = std::copy_n(reinterpret_cast<const std::byte*>(&ref.page), sizeof(PageId), ids);
      if (pages == nullptr) continue;
      backend_.download({pages, page_bytes()}, kept.slab + ref.page * page_bytes());
      pages += page_bytes();
    }
  }
  if (count == 0) return;
  transport_.send(near, half.out_ids, FrameKind::kPages, count * sizeof(PageId), half.pending);
  transport_.send(far, half.out, FrameKind::kPages, count * page_bytes(), half.pending);
}

// Another rank's segment of a round in which it keeps no other.
SegmentPages RingAttention::foreign_segment(int32_t segment, Frame& frame) {
  const int keeper = own_shards().keeper(segment);
  const auto place = static_cast<size_t>(keeper);
  const int32_t tokens = segment_tokens_now(segment), page_tokens = pool_.format().page_tokens;
  SegmentPages found{nullptr, {}, pages_of(tokens)};
  const size_t count = kv_heads() * found.pages_per_head;
  for (size_t i = 0; i < count; ++i) {
    const auto ordinal = static_cast<int32_t>(i % found.pages_per_head);
    found.pages.push_back({.page = static_cast<PageId>(i),
                           .ordinal = static_cast<uint32_t>(ordinal),
                           .first_position = segment * shards_.segment_tokens() + ordinal * page_tokens,
                           .count = static_cast<uint32_t>(std::min(page_tokens, tokens - ordinal * page_tokens))});
  }
  if (shared_.reads(me(), keeper)) {
    const std::byte* from = frame.payload(count * sizeof(PageId)).data();
    for (size_t i = 0; i < count; ++i) std::memcpy(&found.pages[i].page, from + i * sizeof(PageId), sizeof(PageId));
    found.slab = shared_.base.get() + place * shared_.stride;
    return found;
  }
  std::byte* to = staging_.data() + place * kSegmentPages * kv_heads() * page_bytes();
  backend_.upload(to, frame.payload(count * page_bytes()));
  found.slab = to;
  return found;
}

// All segments of a round as one list of pages, where every rank reads every other's.
SegmentPages RingAttention::shared_round(const LayerCall& call, Stretch round, std::vector<Frame>& frames) {
  const auto rank_pages = static_cast<PageId>(shared_.stride / page_bytes());
  std::vector<size_t> taken(static_cast<size_t>(ranks()));
  std::vector<std::vector<PageRef>> heads(kv_heads());
  const int32_t page_tokens = pool_.format().page_tokens;
  for (int32_t segment = round.begin; segment < round.end; ++segment) {
    const auto keeper = static_cast<size_t>(own_shards().keeper(segment));
    const int32_t tokens = segment_tokens_now(segment);
    const size_t pages = pages_of(tokens);
    SegmentPages own;
    if (static_cast<int>(keeper) == me()) own = kept_segment(call.layer, segment);
    const std::byte* ids =
        own.pages.empty()
            ? frames[keeper].payload(pages_kept(static_cast<int>(keeper), round) * sizeof(PageId)).data() +
                  taken[keeper]
            : nullptr;
    for (size_t head = 0; head < kv_heads(); ++head) {
      for (size_t i = 0; i < pages; ++i) {
        PageRef ref;
        if (ids == nullptr)
          ref.page = own.pages[head * pages + i].page;
        else
          std::memcpy(&ref.page, ids + (head * pages + i) * sizeof(PageId), sizeof(PageId));
        ref.page += static_cast<PageId>(keeper) * rank_pages;
        const auto ordinal = static_cast<int32_t>(i);
        ref.ordinal = static_cast<uint32_t>((segment - round.begin) * static_cast<int32_t>(kSegmentPages) + ordinal);
        ref.first_position = segment * shards_.segment_tokens() + ordinal * page_tokens;
        ref.count = static_cast<uint32_t>(std::min(page_tokens, tokens - ordinal * page_tokens));
        heads[head].push_back(ref);
      }
    }
    taken[keeper] += pages * kv_heads() * sizeof(PageId);
  }
  SegmentPages found{shared_.base.get(), {}, heads[0].size()};
  for (const auto& head : heads) found.pages.insert(found.pages.end(), head.begin(), head.end());
  return found;
}

Status RingAttention::pass_kv(const LayerCall& call, const std::vector<Stretch>& rounds, bool first_posted) {
  const int32_t row_count = size_of(rows(me()));
  const Rows mine{call.q, call.positions, spans_of(me(), 0, row_count)};
  const Tensor state = state_tensor(state_.data(), row_count);
  const bool shared = shared_.everybody_reads_all();
  if (!first_posted) post_round(call, rounds[0], 0);
  for (size_t i = 0; i < rounds.size(); ++i) {
    Half& half = halves_[i % 2];
    const Stretch round = rounds[i];
    GODWIT_TRY(transport_.wait(half.pending));
    if (options_.overlap && i + 1 < rounds.size()) post_round(call, rounds[i + 1], i + 1);
    if (row_count > 0 && shared) walk(call, mine, round, shared_round(call, round, half.in), state, i > 0);
    for (int32_t segment = round.begin; row_count > 0 && !shared && segment < round.end; ++segment) {
      const int keeper = own_shards().keeper(segment);
      const SegmentPages pages = keeper == me() ? kept_segment(call.layer, segment)
                                                : foreign_segment(segment, half.in[static_cast<size_t>(keeper)]);
      walk(call, mine, {segment, segment + 1}, pages, state, segment > rounds[0].begin);
    }
    if (!options_.overlap && i + 1 < rounds.size()) post_round(call, rounds[i + 1], i + 1);
  }
  if (row_count > 0) finish(call, {&state, 1}, call.partial);
  return {};
}

}  // namespace godwit::dist
