// pass-KV: rounds of segments come by, in the order of positions.
#include <algorithm>

#include "dist/ring_attention.h"

namespace godwit::dist {

// Whether nothing of the round is of this step, so that it may leave before the step's tokens have arrived.
bool RingAttention::round_is_old(const LayerCall& call, int32_t round) const {
  return first_segment(call) + (round + 1) * ranks() <= shards_.segment_of(step().begin);
}

void RingAttention::post_round(const LayerCall& call, int32_t round) {
  Half& half = halves_[round % 2];
  const int32_t first = first_segment(call) + round * ranks(), end = std::min(end_segment(), first + ranks());
  for (int32_t segment = first; segment < end; ++segment) {
    const size_t bytes = pages_of(segment_tokens_now(segment)) * kv_heads() * page_bytes();
    const int keeper = own_shards().keeper(segment);
    if (keeper != me()) {
      if (!rows(me()).empty())
        transport_.receive(keeper, half.in[static_cast<size_t>(segment - first)], FrameKind::kPages, bytes,
                           half.pending);
      continue;
    }
    if (now_->readers.empty()) continue;
    const SegmentPages pages = kept_segment(call.layer, segment);
    std::byte* to = half.out.payload(bytes).data();
    for (const PageRef& ref : pages.pages) {
      backend_.download({to, page_bytes()}, pages.slab + ref.page * page_bytes());
      to += page_bytes();
    }
    transport_.send(now_->readers, half.out, FrameKind::kPages, bytes, half.pending);
  }
}

Status RingAttention::pass_kv(const LayerCall& call, bool first_posted) {
  const int32_t first = first_segment(call), rounds = (end_segment() - first + ranks() - 1) / ranks();
  const int32_t row_count = size_of(rows(me()));
  const Rows mine{call.q, call.positions, spans_of(me(), 0, row_count)};
  const Tensor state = state_tensor(state_.data(), row_count);
  if (!first_posted) post_round(call, 0);
  for (int32_t round = 0; round < rounds; ++round) {
    Half& half = halves_[round % 2];
    GODWIT_TRY(transport_.wait(half.pending));
    if (options_.overlap && round + 1 < rounds) post_round(call, round + 1);
    const int32_t begin = first + round * ranks(), end = std::min(end_segment(), begin + ranks());
    for (int32_t segment = begin; row_count > 0 && segment < end; ++segment) {
      if (own_shards().keeper(segment) == me()) {
        walk(call, mine, segment, kept_segment(call.layer, segment), state, segment > first);
        continue;
      }
      const auto place = static_cast<size_t>(segment - begin);
      SegmentPages pages{staging_.data() + place * kSegmentPages * kv_heads() * page_bytes(), {}, 0};
      const int32_t tokens = segment_tokens_now(segment), page_tokens = pool_.format().page_tokens;
      pages.pages_per_head = pages_of(tokens);
      for (size_t i = 0; i < kv_heads() * pages.pages_per_head; ++i) {
        const auto ordinal = static_cast<int32_t>(i % pages.pages_per_head);
        pages.pages.push_back({.page = static_cast<PageId>(i),
                               .ordinal = static_cast<uint32_t>(ordinal),
                               .first_position = segment * shards_.segment_tokens() + ordinal * page_tokens,
                               .count = static_cast<uint32_t>(std::min(page_tokens, tokens - ordinal * page_tokens))});
      }
      backend_.upload(const_cast<std::byte*>(pages.slab), half.in[place].payload(pages.pages.size() * page_bytes()));
      walk(call, mine, segment, pages, state, segment > first);
    }
    if (!options_.overlap && round + 1 < rounds) post_round(call, round + 1);
  }
  if (row_count > 0) finish(call, {&state, 1}, call.partial);
  return {};
}

}  // namespace godwit::dist
