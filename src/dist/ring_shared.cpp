// Ranks that all see each other's pages: K and V of new tokens are written where they are kept, and read there.
//
// A rank tells the others that it has written what is new of a layer, attends to what was there before the step, and
// only then waits to hear the same from them. So ranks may be apart by that much of a layer's work before one of them
// waits, and one that is slow for a moment holds nobody up.
//
// One that stays behind is helped: before a rank takes the next block of its own rows, and while it waits, it takes
// blocks of whoever is behind it (work_board.h). It makes the walk that the owner would have made, so the bits are the
// owner's.
#include <algorithm>
#include <cstring>

#include "dist/ring_attention.h"
#include "dist/stopwatch.h"

namespace godwit::dist {
namespace {

// Of a block that one thread computes, as attention on one rank has them (all heads that share keys together), and into
// how many blocks a walk is cut at least: one would be all that others could take.
constexpr int32_t kOfferedQueries = 256, kLeastBlocks = 4;

}  // namespace

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
  return among_all(id, static_cast<int>(keeper), layer);
}

Status RingAttention::write_shared(const LayerCall& call) {
  GODWIT_TRY(transport_.wait(pending_places_));
  knows_places_ = tells_;
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
Stretch RingAttention::shared_stretch(const LayerCall& call, bool fresh) const {
  const int32_t first = first_segment(call), end = end_segment(),
                middle = std::clamp(shards_.segment_of(step().begin), first, end);
  return fresh ? Stretch{middle, end} : Stretch{first, middle};
}

Status RingAttention::walk_shared(const LayerCall& call, bool fresh) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!is_shared(parts_[part])) continue;
    now_ = &parts_[part];
    const int32_t row_begin = now_->row_begin, row_count = size_of(rows(me()));
    if (row_count == 0) continue;
    const LayerCall own = own_call(call);
    const Stretch segments = shared_stretch(call, fresh);
    const Tensor state = state_tensor(states() + state_bytes(row_begin), row_count);
    const int64_t work =
        int64_t{row_count} * segments.size() * shards_.segment_tokens() * shape_.heads * shape_.head_dim;
    if (board_ && segments.size() > 0 && work >= options_.least_offer) {
      GODWIT_TRY(walk_offered(own, {.part = static_cast<int32_t>(part),
                                    .layer = call.layer,
                                    .fresh = fresh ? 1 : 0,
                                    .row_begin = row_begin,
                                    .row_count = row_count,
                                    .rows_per_block = offered_rows(row_count),
                                    .window = call.window,
                                    .scale = call.scale,
                                    .softcap = call.softcap}));
    } else if (segments.size() > 0) {
      walk(own, {own.q, own.positions, spans_of(me(), 0, row_count)}, segments, shared_segments(call.layer, segments),
           state, resumes_at(call, fresh));
    }
    if (fresh) finish(own, {&state, 1}, own.partial);
  }
  return {};
}

// Enough for all threads, and no more: who is behind gives away what it has not begun.
int32_t RingAttention::offered_rows(int32_t row_count) const {
  const int32_t group = shape_.heads / shape_.kv_heads, one = std::max(1, kOfferedQueries / group),
                busy = one * (1 + 2 * (backend_.threads() - 1) / shape_.kv_heads),
                least = (row_count + WorkBoard::kMaxBlocks - 1) / WorkBoard::kMaxBlocks;
  return std::max({1, least, std::min(busy, row_count / kLeastBlocks)});
}

Status RingAttention::walk_offered(const LayerCall& call, const OfferedWalk& walk) {
  const auto first = static_cast<size_t>(walk.row_begin), count = static_cast<size_t>(walk.row_count);
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  for (size_t row = 0; row < count; ++row)
    std::memcpy(board_->queries(me()) + (first + row) * query_bytes, call.q.data + row * call.q.row_stride_bytes,
                query_bytes);
  std::memcpy(board_->positions(me()) + first * sizeof(int32_t), call.positions.data, count * sizeof(int32_t));
  const uint32_t stage = stage_of(walk.layer, walk.fresh != 0);
  board_->offer(step_number_, static_cast<uint16_t>(stage), walk);
  int own_blocks = 0;
  double own_s = 0;
  while (!options_.leaves_rows) {
    while (steal(stage)) {
    }
    const auto block = board_->take_own();
    if (!block) break;
    const Stopwatch watch;
    walk_block(me(), walk, *block);
    own_s += watch.seconds();
    ++own_blocks;
  }
  GODWIT_TRY(transport_.wait_until([&] { return board_->all_returned(); },
                                   [&](double waited_s) {
                                     const int owes = board_->rank_that_owes();
                                     return fmt::format(
                                         "{} has taken rows from rank {} and not returned them for {:.3g} s: it "
                                         "hangs, or is so slow that --rank-timeout must be raised",
                                         owes < 0 ? "another rank" : fmt::format("rank {}", owes), me(), waited_s);
                                   }));
  // By this rank's own blocks, where it computed any: another may be slow, or have been stopped with a block in hand.
  const double others_s = static_cast<double>(board_->withdraw()) * 1e-9;
  times_.relieved_s += own_blocks > 0 ? own_s / own_blocks * (walk.blocks() - own_blocks) : others_s;
  return {};
}

// A block of `owner`'s rows, from its board and to it.
void RingAttention::walk_block(int owner, const OfferedWalk& offered, int32_t block) {
  const auto part = static_cast<size_t>(offered.part);
  GODWIT_CHECK(part < parts_.size() && is_shared(parts_[part]));
  GODWIT_CHECK(offered.layer >= 0 && offered.layer < shape_.layers && offered.rows_per_block > 0);
  now_ = &parts_[part];
  GODWIT_CHECK(offered.row_count == size_of(rows(owner)) && block < offered.blocks());
  GODWIT_CHECK(offered.row_begin >= 0 && offered.row_begin <= shape_.max_rows - offered.row_count);
  const int32_t begin = offered.block_begin(block), end = offered.block_end(block), count = end - begin;
  const auto row = static_cast<size_t>(offered.row_begin + begin);
  LayerCall call;
  call.layer = offered.layer;
  call.scale = offered.scale;
  call.softcap = offered.softcap;
  call.window = offered.window;
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  const Rows rows{
      Tensor(board_->queries(owner) + row * query_bytes, DType::kF32, {count, shape_.heads, shape_.head_dim}),
      Tensor(board_->positions(owner) + row * sizeof(int32_t), DType::kI32, {count}), spans_of(owner, begin, end)};
  const bool fresh = offered.fresh != 0;
  const Stretch segments = shared_stretch(call, fresh);
  walk(call, rows, segments, shared_segments(call.layer, segments),
       state_tensor(board_->states(owner) + state_bytes(static_cast<int32_t>(row)), count), resumes_at(call, fresh));
}

// A block of whoever is behind the most, if that is before a stage; false: there is none.
bool RingAttention::steal(uint32_t before_stage) {
  if (!knows_places_) return false;
  const auto taken = board_->take(step_number_, before_stage);
  if (!taken) return false;
  const Part* before = now_;
  const double attention_s = times_.attention_s;
  const Stopwatch watch;
  walk_block(taken->owner, taken->walk, taken->block);
  const double seconds = watch.seconds();
  board_->give_back(*taken, static_cast<int64_t>(seconds * 1e9));
  times_.attention_s = attention_s;
  times_.stolen_s += seconds;
  now_ = before;
  return true;
}

}  // namespace godwit::dist
