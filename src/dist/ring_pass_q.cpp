// pass-Q: queries go to where keys and values are, and what they find there comes back.
#include <algorithm>

#include "dist/ring_attention.h"

namespace godwit::dist {
namespace {

constexpr size_t kStatesBytes = size_t{32} << 20;  // of a block of rows, over all segments; at least one row

}  // namespace

Result<std::byte*> RingAttention::device(Buffer& buffer, size_t bytes) {
  if (buffer.bytes < bytes) {
    GODWIT_ASSIGN(buffer, backend_.allocate(bytes));
  }
  return buffer.data();
}

RingAttention::Block RingAttention::block_of(int rank, int32_t index, int32_t rows_per_block) const {
  const int32_t all = size_of(rows(rank));
  Block block{std::min(all, index * rows_per_block), std::min(all, (index + 1) * rows_per_block), -1};
  for (const Span& span : spans_of(rank, block.row_begin, block.row_end))
    block.last_position = span.position + span.row_end - span.row_begin - 1;
  return block;
}

int32_t RingAttention::states_of(int keeper, const Block& block, int32_t first) const {
  if (block.size() == 0) return 0;
  if (now_->what.compact) return own_shards().share(keeper).place >= 0 ? 1 : 0;
  int32_t count = 0;
  for (int32_t segment = first; segment <= shards_.segment_of(block.last_position); ++segment)
    if (own_shards().keeper(segment) == keeper) ++count;
  return exact() ? count : std::min(count, 1);
}

// The states of this rank's segments for the rows, one after the other.
void RingAttention::walk_kept(const LayerCall& call, const Rows& rows, const Block& block, std::byte* states) {
  if (now_->what.compact) return walk_compact(call, rows, state_tensor(states, block.size()));
  bool any = false;
  for (int32_t segment = first_segment(call); segment <= shards_.segment_of(block.last_position); ++segment) {
    if (own_shards().keeper(segment) != me()) continue;
    if (any && exact()) states += state_bytes(block.size());
    walk(call, rows, {segment, segment + 1}, kept_segment(call.layer, segment), state_tensor(states, block.size()),
         any && !exact());
    any = true;
  }
}

Status RingAttention::pass_q(const LayerCall& call) {
  const auto states = static_cast<size_t>(exact() ? end_segment() - first_segment(call) : ranks());
  int32_t most = 0;
  for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, size_of(rows(rank)));
  const auto fit = static_cast<int32_t>(
      std::clamp<size_t>(kStatesBytes / (states * state_bytes(1)), 1, static_cast<size_t>(shape_.max_rows)));
  for (int32_t block = 0; block * fit < most; ++block) GODWIT_TRY(pass_q_block(call, block, fit));
  return {};
}

Status RingAttention::pass_q_block(const LayerCall& call, int32_t index, int32_t rows_per_block) {
  const int32_t first = first_segment(call);
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  const Block mine = block_of(me(), index, rows_per_block);
  auto at = [](int rank) { return static_cast<size_t>(rank); };

  // Queries out and in, states in.
  std::vector<Transport::Pending> sent, states_pending;
  std::vector<std::vector<Transport::Pending>> queries_pending(at(ranks()));
  std::vector<int> keepers;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == me()) continue;
    const Block theirs = block_of(peer, index, rows_per_block);
    if (states_of(me(), theirs, first) > 0)
      transport_.receive(peer, queries_in_[at(peer)], FrameKind::kQueries, at(theirs.size()) * query_bytes,
                         queries_pending[at(peer)]);
    if (const int32_t count = states_of(peer, mine, first); count > 0) {
      keepers.push_back(peer);
      transport_.receive(peer, states_in_[at(peer)], FrameKind::kStates, at(count) * state_bytes(mine.size()),
                         states_pending);
    }
  }
  Frame& queries = queries_in_[at(me())];
  if (!keepers.empty()) {
    const size_t bytes = at(mine.size()) * query_bytes;
    backend_.download(queries.payload(bytes), call.q.data + at(mine.row_begin) * call.q.row_stride_bytes);
    transport_.send(keepers, queries, FrameKind::kQueries, bytes, sent);
  }

  // Others' rows, beginning with the next rank's, so that not all work for the same one.
  for (int i = 1; i < ranks(); ++i) {
    const int peer = (me() + i) % ranks();
    const Block theirs = block_of(peer, index, rows_per_block);
    const int32_t count = states_of(me(), theirs, first);
    if (count == 0) continue;
    GODWIT_TRY(transport_.wait(queries_pending[at(peer)]));
    std::vector<int32_t> positions;
    Rows rows{Tensor(queries_.data(), DType::kF32, {theirs.size(), shape_.heads, shape_.head_dim}),
              Tensor(query_positions_.data(), DType::kI32, {theirs.size()}),
              spans_of(peer, theirs.row_begin, theirs.row_end)};
    for (const Span& span : rows.spans)
      for (int32_t row = span.row_begin; row < span.row_end; ++row)
        positions.push_back(span.position + row - span.row_begin);
    backend_.upload(queries_.data(), queries_in_[at(peer)].payload(at(theirs.size()) * query_bytes));
    backend_.upload(query_positions_.data(), std::as_bytes(std::span(positions)));
    const size_t bytes = at(count) * state_bytes(theirs.size());
    GODWIT_ASSIGN(std::byte * states, device(walked_, bytes));
    walk_kept(call, rows, theirs, states);
    backend_.download(states_out_[at(peer)].payload(bytes), states);
    transport_.send({&peer, 1}, states_out_[at(peer)], FrameKind::kStates, bytes, sent);
  }

  if (mine.size() > 0) {
    const size_t one = state_bytes(mine.size());
    const int32_t last = shards_.segment_of(mine.last_position);
    const int32_t places = exact() ? last - first + 1 : ranks();
    GODWIT_ASSIGN(std::byte * states, device(returned_, at(places) * one));
    const Rows rows{call.q.slice(mine.row_begin, mine.row_end), call.positions.slice(mine.row_begin, mine.row_end),
                    spans_of(me(), mine.row_begin, mine.row_end)};
    if (const int32_t count = states_of(me(), mine, first); count > 0) {
      GODWIT_ASSIGN(std::byte * own, device(walked_, at(count) * one));
      walk_kept(call, rows, mine, own);
    }
    GODWIT_TRY(transport_.wait(states_pending));
    // In the order of segments, or of ranks.
    std::vector<Tensor> order;
    std::vector<size_t> taken(at(ranks()));
    for (int32_t place = 0; place < places; ++place) {
      const int keeper = exact() ? own_shards().keeper(first + place) : place;
      if (states_of(keeper, mine, first) == 0) continue;
      const size_t offset = taken[at(keeper)]++ * one;
      std::byte* from = walked_.data() + offset;
      if (keeper != me()) {
        from = states + at(place) * one;
        backend_.upload(from, states_in_[at(keeper)].payload(offset + one).subspan(offset));
      }
      order.push_back(state_tensor(from, mine.size()));
    }
    finish(
        call, order,
        {call.partial.out.slice(mine.row_begin, mine.row_end), call.partial.lse.slice(mine.row_begin, mine.row_end)});
  }
  return transport_.wait(sent);
}

}  // namespace godwit::dist
