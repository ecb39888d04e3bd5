// pass-Q: queries go to where keys and values are, and what they find there comes back.
#include <algorithm>
#include <utility>

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

RingAttention::Block RingAttention::look_at(const PassQItem& item, int rank) {
  now_ = item.part;
  return block_of(rank, item.index, item.rows_per_block);
}

// As many blocks at once as their states have room; every rank comes to the same.
Status RingAttention::pass_q(const LayerCall& call) {
  std::vector<PassQItem> batch;
  size_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.what.mode != RingMode::kPassQ) continue;
    now_ = &part;
    const auto states = static_cast<size_t>(exact() ? end_segment() - first_segment(call) : own_shards().ranks());
    const size_t row_bytes = states * state_bytes(1);
    int32_t most = 0;
    for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, size_of(rows(rank)));
    const auto fit =
        static_cast<int32_t>(std::clamp<size_t>(kStatesBytes / row_bytes, 1, static_cast<size_t>(shape_.max_rows)));
    for (int32_t block = 0; block * fit < most; ++block) {
      const size_t added = static_cast<size_t>(std::min(fit, most - block * fit)) * row_bytes;
      if (!batch.empty() && bytes + added > kStatesBytes) {
        GODWIT_TRY(pass_q_batch(call, batch));
        batch.clear();
        bytes = 0;
      }
      batch.push_back({&part, block, fit});
      bytes += added;
    }
  }
  return batch.empty() ? Status() : pass_q_batch(call, batch);
}

// Between two ranks at most one message of queries and one of states each way: blocks follow one another in them.
Status RingAttention::pass_q_batch(const LayerCall& call, std::span<const PassQItem> items) {
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  auto at = [](int rank) { return static_cast<size_t>(rank); };

  // Queries out and in, states in.
  std::vector<Transport::Pending> sent, states_pending;
  std::vector<std::vector<Transport::Pending>> queries_pending(at(ranks()));
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == me()) continue;
    size_t queries_in = 0, queries_out = 0, states_in = 0;
    for (const PassQItem& item : items) {
      const Block mine = look_at(item, me()), theirs = look_at(item, peer);
      const int32_t first = first_segment(call), count = states_of(peer, mine, first);
      if (states_of(me(), theirs, first) > 0) queries_in += at(theirs.size()) * query_bytes;
      if (count > 0) queries_out += at(mine.size()) * query_bytes;
      states_in += at(count) * state_bytes(mine.size());
    }
    if (queries_in > 0)
      transport_.receive(peer, queries_in_[at(peer)], FrameKind::kQueries, queries_in, queries_pending[at(peer)]);
    if (states_in > 0) transport_.receive(peer, states_in_[at(peer)], FrameKind::kStates, states_in, states_pending);
    if (queries_out == 0) continue;
    std::span<std::byte> rest = queries_out_[at(peer)].payload(queries_out);
    for (const PassQItem& item : items) {
      const Block mine = look_at(item, me());
      if (states_of(peer, mine, first_segment(call)) == 0) continue;
      const size_t bytes = at(mine.size()) * query_bytes;
      backend_.download(rest.first(bytes),
                        call.q.data + at(now_->row_begin + mine.row_begin) * call.q.row_stride_bytes);
      rest = rest.subspan(bytes);
    }
    transport_.send({&peer, 1}, queries_out_[at(peer)], FrameKind::kQueries, queries_out, sent);
  }

  // Others' rows, beginning with the next rank's, so that not all work for the same one.
  for (int i = 1; i < ranks(); ++i) {
    const int peer = (me() + i) % ranks();
    if (queries_pending[at(peer)].empty()) continue;
    GODWIT_TRY(transport_.wait(queries_pending[at(peer)]));
    GODWIT_TRY(answer(call, items, peer, sent));
  }
  GODWIT_TRY(merge_own(call, items, states_pending));
  return transport_.wait(sent);
}

// Walks what is kept here for a peer's rows, whose queries have come, and sends what was found.
Status RingAttention::answer(const LayerCall& call, std::span<const PassQItem> items, int peer,
                             std::vector<Transport::Pending>& sent) {
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  const auto from = static_cast<size_t>(peer);
  size_t all = 0, queries = 0;
  for (const PassQItem& item : items) {
    const Block theirs = look_at(item, peer);
    all += static_cast<size_t>(states_of(me(), theirs, first_segment(call))) * state_bytes(theirs.size());
  }
  std::span<std::byte> rest = states_out_[from].payload(all);
  for (const PassQItem& item : items) {
    const Block theirs = look_at(item, peer);
    const int32_t count = states_of(me(), theirs, first_segment(call));
    if (count == 0) continue;
    std::vector<int32_t> positions;
    const Rows rows{Tensor(queries_.data(), DType::kF32, {theirs.size(), shape_.heads, shape_.head_dim}),
                    Tensor(query_positions_.data(), DType::kI32, {theirs.size()}),
                    spans_of(peer, theirs.row_begin, theirs.row_end)};
    for (const Span& span : rows.spans)
      for (int32_t row = span.row_begin; row < span.row_end; ++row)
        positions.push_back(span.position + row - span.row_begin);
    const size_t asked = static_cast<size_t>(theirs.size()) * query_bytes;
    backend_.upload(queries_.data(), queries_in_[from].payload(queries + asked).subspan(queries));
    backend_.upload(query_positions_.data(), std::as_bytes(std::span(positions)));
    queries += asked;
    const size_t bytes = static_cast<size_t>(count) * state_bytes(theirs.size());
    GODWIT_ASSIGN(std::byte * states, device(walked_, bytes));
    walk_kept(call, rows, theirs, states);
    backend_.download(rest.first(bytes), states);
    rest = rest.subspan(bytes);
  }
  transport_.send({&peer, 1}, states_out_[from], FrameKind::kStates, all, sent);
  return {};
}

// This rank's rows: what is kept here is walked while the others' states come, then all are taken together.
Status RingAttention::merge_own(const LayerCall& call, std::span<const PassQItem> items,
                                std::vector<Transport::Pending>& states_pending) {
  auto at = [](int rank) { return static_cast<size_t>(rank); };
  size_t own_bytes = 0, returned_bytes = 0;
  for (const PassQItem& item : items) {
    const Block mine = look_at(item, me());
    if (mine.size() == 0) continue;
    own_bytes += at(states_of(me(), mine, first_segment(call))) * state_bytes(mine.size());
    for (int rank = 0; rank < ranks(); ++rank)
      if (rank != me()) returned_bytes += at(states_of(rank, mine, first_segment(call))) * state_bytes(mine.size());
  }
  GODWIT_ASSIGN(std::byte * walked, device(walked_, own_bytes));
  GODWIT_ASSIGN(std::byte * returned, device(returned_, returned_bytes));
  std::byte* to = walked;
  for (const PassQItem& item : items) {
    const Block mine = look_at(item, me());
    const int32_t count = states_of(me(), mine, first_segment(call));
    if (count == 0) continue;
    const LayerCall own = own_call(call);
    walk_kept(call,
              {own.q.slice(mine.row_begin, mine.row_end), own.positions.slice(mine.row_begin, mine.row_end),
               spans_of(me(), mine.row_begin, mine.row_end)},
              mine, to);
    to += at(count) * state_bytes(mine.size());
  }
  GODWIT_TRY(transport_.wait(states_pending));
  std::vector<size_t> taken(at(ranks()));  // bytes of each rank's states
  for (const PassQItem& item : items) {
    const Block mine = look_at(item, me());
    if (mine.size() == 0) continue;
    const size_t one = state_bytes(mine.size());
    const int32_t first = first_segment(call);
    // In the order of segments, or of the ranks that keep them.
    const int32_t places = exact() ? shards_.segment_of(mine.last_position) - first + 1 : own_shards().ranks();
    std::vector<Tensor> order;
    for (int32_t place = 0; place < places; ++place) {
      const int keeper = own_shards().keeper(exact() ? first + place : place);
      if (states_of(keeper, mine, first) == 0) continue;
      const size_t offset = std::exchange(taken[at(keeper)], taken[at(keeper)] + one);
      std::byte* from = keeper == me() ? walked + offset : std::exchange(returned, returned + one);
      if (keeper != me()) backend_.upload(from, states_in_[at(keeper)].payload(offset + one).subspan(offset));
      order.push_back(state_tensor(from, mine.size()));
    }
    const AttnPartial out = own_call(call).partial;
    finish(call, order, {out.out.slice(mine.row_begin, mine.row_end), out.lse.slice(mine.row_begin, mine.row_end)});
  }
  return {};
}

}  // namespace godwit::dist
