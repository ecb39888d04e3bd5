#include "dist/ring_attention.h"

#include <algorithm>
#include <chrono>

#include "dist/stopwatch.h"

namespace godwit::dist {

PageForms page_forms(const KvFormat& format, Stretch step, int32_t page) {
  if (!format.seals) return {};
  const auto at = static_cast<size_t>(page);
  if (at < format.sealed_begin()) return {false, true};
  return {at < format.sealed_end(static_cast<size_t>(step.end - 1)),
          at >= format.sealed_end(static_cast<size_t>(step.begin))};
}

RingAttention::RingAttention(Transport& transport, KvPool& pool, const RingShape& shape, const RingOptions& options,
                             SharedView shared)
    : transport_(transport),
      pool_(pool),
      backend_(pool.backend()),
      shape_(shape),
      options_(options),
      shards_(transport.size(), pool.format().page_tokens),
      shared_(std::move(shared)),
      poll_([this] { transport_.poll(); }) {
  const auto count = static_cast<size_t>(ranks());
  for (auto* frames : {&new_out_, &new_in_, &queries_in_, &states_in_, &states_out_}) frames->resize(count);
  for (Half& half : halves_) half.in.resize(count);
}

Result<std::unique_ptr<RingAttention>> RingAttention::create(Transport& transport, KvPool& pool, const RingShape& shape,
                                                             const RingOptions& options, SharedView shared) {
  std::unique_ptr<RingAttention> ring(new RingAttention(transport, pool, shape, options, std::move(shared)));
  GODWIT_TRY(ring->allocate());
  return ring;
}

Status RingAttention::allocate() {
  const auto rows = static_cast<size_t>(shape_.max_rows);
  // Each destination may leave a page half empty.
  size_t most = 0, most_new = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    most = std::max(most, page_bytes(layer));
    most_new = std::max(most_new, new_format(layer).page_bytes());
  }
  const size_t box = (pages_of(shape_.max_rows) + static_cast<size_t>(ranks())) * kv_heads() * most_new;
  const size_t segment = kSegmentPages * kv_heads() * most, open = kSegmentPages * kv_heads() * open_page_bytes();
  GODWIT_ASSIGN(outbox_, backend_.allocate(box));
  GODWIT_ASSIGN(inbox_, backend_.allocate(box));
  GODWIT_ASSIGN(staging_, backend_.allocate(static_cast<size_t>(ranks()) * segment));
  if (open > 0) {
    GODWIT_ASSIGN(open_staging_, backend_.allocate(static_cast<size_t>(ranks()) * open));
  }
  GODWIT_ASSIGN(state_, backend_.allocate(state_bytes(shape_.max_rows)));
  GODWIT_ASSIGN(queries_,
                backend_.allocate(rows * static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float)));
  GODWIT_ASSIGN(query_positions_, backend_.allocate(rows * sizeof(int32_t)));
  for (Half& half : halves_) {
    half.out.reserve(segment + open);
    for (Frame& frame : half.in) frame.reserve(segment + open);
  }
  return {};
}

size_t RingAttention::pages_of(int32_t tokens) const {
  const auto page_tokens = static_cast<size_t>(pool_.format().page_tokens);
  return (static_cast<size_t>(tokens) + page_tokens - 1) / page_tokens;
}

size_t RingAttention::state_bytes(int32_t row_count) const {
  return static_cast<size_t>(row_count) * static_cast<size_t>(shape_.heads) *
         static_cast<size_t>(attention_state_width(shape_.head_dim)) * sizeof(float);
}

Tensor RingAttention::state_tensor(std::byte* at, int32_t row_count) const {
  return {at, DType::kF32, {row_count, shape_.heads, attention_state_width(shape_.head_dim)}};
}

void RingAttention::begin(std::span<const RingPart> parts) {
  parts_.clear();
  int32_t own_rows = 0;
  for (const RingPart& what : parts) {
    Part part{what, Shards(ranks(), pool_.format().page_tokens, what.first), {}, {}, {}};
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<Piece> pieces;
      int32_t row = 0;
      part.rows.push_back(part.shards.rows(rank, what.step));
      for (const Stretch& run : part.rows.back()) {
        for (int32_t at = run.begin; at < run.end;) {
          const int32_t segment = shards_.segment_of(at);
          const int32_t end = std::min(run.end, (segment + 1) * shards_.segment_tokens());
          pieces.push_back({row, {at, end}, part.shards.keeper(segment)});
          row += end - at;
          at = end;
        }
      }
      part.pieces.push_back(std::move(pieces));
      if (rank == me())
        own_rows += row;
      else if (row > 0)
        part.readers.push_back(rank);
    }
    parts_.push_back(std::move(part));
  }
  GODWIT_CHECK(own_rows <= shape_.max_rows);
}

std::vector<RingAttention::Span> RingAttention::spans_of(int rank, int32_t row_begin, int32_t row_end) const {
  std::vector<Span> spans;
  int32_t row = 0;
  for (const Stretch& run : rows(rank)) {
    const int32_t begin = std::max(row, row_begin), end = std::min(row + run.size(), row_end);
    if (begin < end) spans.push_back({begin - row_begin, end - row_begin, run.begin + begin - row});
    row += run.size();
  }
  return spans;
}

int32_t RingAttention::first_segment(const LayerCall& call) const {
  return call.window == 0 ? 0 : shards_.segment_of(std::max(0, step().begin - call.window + 1));
}

int32_t RingAttention::segment_tokens_now(int32_t segment) const {
  return std::min(shards_.segment_tokens(), step().end - segment * shards_.segment_tokens());
}

SegmentPages RingAttention::kept_segment(int layer, int32_t segment) const {
  const KvSequence& sequence = *now_->what.sequence;
  SegmentPages found{pool_.slab(layer), pool_.open_slab(), {}, pages_of(segment_tokens_now(segment))};
  const size_t first = static_cast<size_t>(segment / own_shards().ranks()) * kSegmentPages;
  for (int head = 0; head < shape_.kv_heads; ++head)
    sequence.list_pages(layer, head, first, first + found.pages_per_head, found.pages);
  // There may be room for later steps already.
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  const uint32_t last = static_cast<uint32_t>(segment_tokens_now(segment)) - page_tokens * (found.pages_per_head - 1);
  for (size_t head = 1; head <= kv_heads(); ++head) {
    PageRef& ref = found.pages[head * found.pages_per_head - 1];
    ref.count = std::min(ref.count, last);
  }
  if (!sequence.sealing()) return found;
  for (int head = 0; head < shape_.kv_heads; ++head)
    for (size_t i = 0; i < found.pages_per_head; ++i)
      found.earlier.push_back(sequence.earlier_form(layer, head, first + i));
  return found;
}

bool RingAttention::reads_shared() const {
  bool any = false;
  for (const auto& readers : shared_.readers)
    any = any || std::find(readers.begin(), readers.end(), 1) != readers.end();
  return any &&
         std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.what.mode != RingMode::kPassQ; });
}

void RingAttention::attend(const LayerCall& call) {
  if (!status()) return;
  const Stopwatch watch;
  const double waited = transport_.waited_s();
  int32_t row = 0;
  for (const Part& part : parts_) {
    now_ = &part;
    const int32_t end = row + size_of(rows(me()));
    LayerCall own = call;
    for (Tensor* tensor : {&own.q, &own.k, &own.v, &own.positions, &own.partial.out, &own.partial.lse})
      *tensor = tensor->slice(row, end);
    attend_part(own);
    row = end;
  }
  times_.exposed_s += transport_.waited_s() - waited;
  times_.total_s += watch.seconds();
  times_.layers += 1;
}

void RingAttention::attend_part(const LayerCall& call) {
  const bool passes_kv = now_->what.mode != RingMode::kPassQ;
  send_new(call);
  seal(call, true);
  const std::vector<Stretch> rounds = passes_kv ? rounds_of(call) : std::vector<Stretch>();
  const bool early = passes_kv && options_.overlap && is_old(rounds[0]);
  if (early) post_round(call, rounds[0], 0);
  // A failure is in status(), for everyone who asks.
  if (!take_new(call)) return;
  seal(call, false);
  (void)(passes_kv ? pass_kv(call, rounds, early) : pass_q(call));
}

// --- new tokens

void RingAttention::send_new(const LayerCall& call) {
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  const size_t row_slots = kv_heads(), page_bytes = new_format(call.layer).page_bytes();
  std::vector<KvSlot> slots(static_cast<size_t>(size_of(rows(me()))) * row_slots);
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
  if (!slots.empty())
    backend_.kv_write(
        {.format = new_format(call.layer), .slab = outbox_.data(), .slots = slots, .k = call.k, .v = call.v});

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

// From pages packed as send_new() packs them into the sequence's own.
void RingAttention::place_new(const LayerCall& call, int from, const std::byte* slab, PageId first_page) {
  const auto page_tokens = static_cast<uint32_t>(pool_.format().page_tokens);
  std::vector<KvMove> moves;
  uint32_t count = 0;
  for (const Piece& piece : pieces(from)) {
    if (piece.keeper != me()) continue;
    const int32_t segment = shards_.segment_of(piece.positions.begin);
    const SegmentPages pages = kept_segment(call.layer, segment);
    std::vector<PageId> to = pages.earlier;
    if (to.empty())
      for (const PageRef& ref : pages.pages) to.push_back(ref.page);
    for (int32_t position = piece.positions.begin; position < piece.positions.end; ++position, ++count) {
      const auto offset = static_cast<uint32_t>(position - segment * shards_.segment_tokens());
      for (size_t head = 0; head < kv_heads(); ++head)
        moves.push_back(
            {{first_page + static_cast<PageId>(count / page_tokens * kv_heads() + head), count % page_tokens},
             {to[head * pages.pages_per_head + offset / page_tokens], offset % page_tokens}});
    }
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
  const Stretch pages{turn(step().begin), turn(step().end)};
  seals_.clear();
  now_->what.sequence->list_seals(call.layer, seals_);
  std::erase_if(seals_, [&](const KvSeal& seal) {
    const int32_t page = pool_.first_position(seal.open) / format.page_tokens;
    const bool complete = (page + 1) * format.page_tokens <= step().begin;
    return page < pages.begin || page >= pages.end || complete != complete_before;
  });
  if (!seals_.empty())
    backend_.kv_seal(
        {.format = format, .open_slab = pool_.open_slab(), .slab = pool_.slab(call.layer), .pages = seals_});
}

// --- walks

void RingAttention::walk(const LayerCall& call, const Rows& rows, Stretch segments, const SegmentPages& pages,
                         Tensor state, bool resumes) {
  // Rows ascend in position: those that see something of the segments are one range.
  const int32_t begin = segments.begin * shards_.segment_tokens(), end = segments.end * shards_.segment_tokens();
  int32_t row_begin = INT32_MAX, row_end = 0;
  for (const Span& span : rows.spans) {
    const int32_t first = std::max(span.position, begin);
    const int32_t behind = span.position + span.row_end - span.row_begin;
    const int32_t last = call.window == 0 ? behind : std::min(behind, end - 1 + call.window);
    if (first >= last) continue;
    row_begin = std::min(row_begin, span.row_begin + first - span.position);
    row_end = span.row_begin + last - span.position;
  }
  plan_.tiles.clear();
  plan_.pages.clear();
  // Where pages are there in both forms, rows of a page of queries read the same ones.
  const KvFormat& format = this->format(call.layer);
  for (int32_t row = row_begin; row < row_end;) {
    int32_t next = row_end;
    size_t sealed_end = SIZE_MAX;
    if (!pages.earlier.empty()) {
      const auto span =
          std::find_if(rows.spans.begin(), rows.spans.end(), [&](const Span& s) { return row < s.row_end; });
      const int32_t position = span->position + row - span->row_begin;
      sealed_end = format.sealed_end(static_cast<size_t>(position));
      next = std::min({row_end, span->row_end, row + format.page_tokens - position % format.page_tokens});
    }
    add_tiles(row, next, pages, sealed_end);
    row = next;
  }
  if (resumes && plan_.tiles.empty()) return;
  AttentionArgs args;
  args.format = format;
  args.slab = pages.slab;
  args.open_slab = pages.open_slab;
  args.plan = &plan_;
  args.q = rows.q;
  args.positions = rows.positions;
  args.kv_heads = shape_.kv_heads;
  args.scale = call.scale;
  args.softcap = call.softcap;
  args.window = call.window;
  args.state = state;
  args.resumes = resumes;
  args.poll = &poll_;
  const Stopwatch watch;
  backend_.attention(args);
  times_.attention_s += watch.seconds();
}

void RingAttention::add_tiles(int32_t row_begin, int32_t row_end, const SegmentPages& pages, size_t sealed_end) {
  const auto page_tokens = pool_.format().page_tokens;
  for (size_t head = 0; head < kv_heads(); ++head) {
    const auto begin = static_cast<uint32_t>(plan_.pages.size());
    for (size_t i = head * pages.pages_per_head; i < (head + 1) * pages.pages_per_head; ++i) {
      PageRef& ref = plan_.pages.emplace_back(pages.pages[i]);
      if (!pages.earlier.empty() && static_cast<size_t>(ref.first_position / page_tokens) >= sealed_end)
        ref.page = pages.earlier[i];
    }
    plan_.tiles.push_back(
        {row_begin, row_end, static_cast<int32_t>(head), begin, static_cast<uint32_t>(plan_.pages.size())});
  }
}

void RingAttention::finish(const LayerCall& call, std::span<const Tensor> states, const AttnPartial& partial) {
  const Stopwatch watch;
  backend_.finish_attention({.format = format(call.layer), .states = states, .partial = partial});
  times_.merge_s += watch.seconds();
}

Result<double> RingAttention::measure_segment(int row_count) {
  row_count = std::min(row_count, shape_.max_rows);
  const size_t q_numbers = static_cast<size_t>(row_count * shape_.heads * shape_.head_dim);
  const std::vector<float> zeros(q_numbers, 0.0f);
  const std::vector<int32_t> positions(static_cast<size_t>(row_count), shards_.segment_tokens());
  backend_.upload(queries_.data(), std::as_bytes(std::span(zeros)));
  backend_.upload(query_positions_.data(), std::as_bytes(std::span(positions)));
  const size_t bytes = kSegmentPages * kv_heads() * page_bytes(0);
  const std::vector<std::byte> empty(bytes);
  backend_.upload(staging_.data(), empty);
  SegmentPages pages{staging_.data(), open_staging_.data(), {}, kSegmentPages};
  for (size_t i = 0; i < kv_heads() * kSegmentPages; ++i)
    pages.pages.push_back({.page = static_cast<PageId>(i),
                           .ordinal = static_cast<uint32_t>(i % kSegmentPages),
                           .first_position = static_cast<int32_t>(i % kSegmentPages) * pool_.format().page_tokens,
                           .count = static_cast<uint32_t>(pool_.format().page_tokens)});
  const Rows rows{Tensor(queries_.data(), DType::kF32, {row_count, shape_.heads, shape_.head_dim}),
                  Tensor(query_positions_.data(), DType::kI32, {row_count}),
                  {{0, row_count, shards_.segment_tokens()}}};
  const RingTimes before = times_;
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const Stopwatch watch;
    walk({}, rows, {0, 1}, pages, state_tensor(state_.data(), row_count), false);
    best = std::min(best, watch.seconds());
  }
  times_ = before;
  return best;
}

}  // namespace godwit::dist
