#include "dist/ring_attention.h"

#include <algorithm>
#include <chrono>
#include <utility>

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
      round_segments_(static_cast<int32_t>(pool.spare_pages() / (kSegmentPages * kv_heads()) /
                                           static_cast<size_t>(transport.size()))),
      poll_([this] { transport_.poll(); }),
      windows_(static_cast<size_t>(shape.layers), kUnknownWindow) {
  GODWIT_CHECK(round_segments_ > 0, "a pool has {} spare pages", pool.spare_pages());
  const auto count = static_cast<size_t>(ranks());
  for (auto* frames :
       {&new_out_, &new_in_, &queries_out_, &queries_in_, &states_in_, &states_out_, &places_, &written_in_})
    frames->resize(count);
  for (Half& half : halves_) half.in.resize(count);
}

// More segments at once are fewer walks, each of which has its queries to pack and its states to fetch and to leave.
size_t RingAttention::spare_pages(int ranks, int kv_heads, std::span<const KvFormat> formats) {
  constexpr size_t kMostSegments = 4, kMostMessage = size_t{8} << 20;
  size_t largest = 0;
  for (const KvFormat& format : formats)
    largest = std::max(largest, format.page_bytes() + (format.seals ? format.open_format().page_bytes() : 0));
  const size_t segment_pages = kSegmentPages * static_cast<size_t>(kv_heads);
  const size_t segments = std::clamp(kMostMessage / (segment_pages * largest), size_t{1}, kMostSegments);
  return static_cast<size_t>(ranks) * segments * segment_pages;
}

Result<std::unique_ptr<RingAttention>> RingAttention::create(Transport& transport, KvPool& pool, const RingShape& shape,
                                                             const RingOptions& options, SharedView shared) {
  std::unique_ptr<RingAttention> ring(new RingAttention(transport, pool, shape, options, std::move(shared)));
  GODWIT_TRY(ring->make_board());
  GODWIT_TRY(ring->allocate());
  return ring;
}

Status RingAttention::make_board() {
  if (!options_.steal || !shared_.everybody_reads_all()) return {};
  const size_t query_bytes = static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float);
  GODWIT_ASSIGN(board_,
                WorkBoard::create(transport_, {static_cast<size_t>(shape_.max_rows), query_bytes, state_bytes(1)}));
  return {};
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
  const size_t round = static_cast<size_t>(round_segments_) * kSegmentPages * kv_heads() * (most + open_page_bytes());
  GODWIT_ASSIGN(outbox_, backend_.allocate(box));
  GODWIT_ASSIGN(inbox_, backend_.allocate(box));
  if (!board_) {
    GODWIT_ASSIGN(state_, backend_.allocate(state_bytes(shape_.max_rows)));
  }
  GODWIT_ASSIGN(queries_,
                backend_.allocate(rows * static_cast<size_t>(shape_.heads * shape_.head_dim) * sizeof(float)));
  GODWIT_ASSIGN(query_positions_, backend_.allocate(rows * sizeof(int32_t)));
  for (Half& half : halves_) {
    if (shared_.everybody_reads_all()) break;  // no K or V travels
    half.out.reserve(round);
    for (int rank = 0; rank < ranks(); ++rank)
      if (rank != me()) half.in[static_cast<size_t>(rank)].reserve(round);
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

void RingAttention::begin(std::span<const RingPart> parts, const Shares& shares) {
  parts_.clear();
  pieces_.assign(static_cast<size_t>(ranks()), {});
  sent_rows_.clear();
  row_counts_.assign(static_cast<size_t>(ranks()), 0);
  std::vector<uint8_t> tell(static_cast<size_t>(ranks()));
  for (const RingPart& what : parts) {
    Part part{what, Shards(ranks(), pool_.format().page_tokens, what.first, what.degree, shares), {}, 0, {}, {}};
    part.row_begin = row_counts_[static_cast<size_t>(me())];
    for (int rank = 0; rank < ranks(); ++rank) {
      int32_t& row = row_counts_[static_cast<size_t>(rank)];
      const int32_t begin = row;
      part.rows.push_back(part.shards.rows(rank, what.step));
      for (const Stretch& run : part.rows.back()) {
        for (int32_t at = run.begin; at < run.end;) {
          const int32_t segment = shards_.segment_of(at);
          const int32_t end = std::min(run.end, (segment + 1) * shards_.segment_tokens());
          if (!is_shared(part))
            pieces_[static_cast<size_t>(rank)].push_back({parts_.size(), row, {at, end}, part.shards.keeper(segment)});
          row += end - at;
          at = end;
        }
      }
      if (rank != me() && row > begin) part.readers.push_back(rank);
      if (is_shared(part) && row > begin) tell[static_cast<size_t>(rank)] = 1;
    }
    const Stretch own{part.row_begin, row_counts_[static_cast<size_t>(me())]};
    if (!is_shared(part) && own.size() > 0) {
      if (!sent_rows_.empty() && sent_rows_.back().end == own.begin)
        sent_rows_.back().end = own.end;
      else
        sent_rows_.push_back(own);
    }
    parts_.push_back(std::move(part));
  }
  for (const int32_t count : row_counts_) GODWIT_CHECK(count <= shape_.max_rows);
  times_.rows += static_cast<uint64_t>(row_counts_[static_cast<size_t>(me())]);
  tells_ = tell[static_cast<size_t>(me())] != 0;
  tellers_.clear();
  for (int rank = 0; rank < ranks(); ++rank)
    if (rank != me() && tell[static_cast<size_t>(rank)] != 0) tellers_.push_back(rank);
  knows_places_ = posted_ = false;
  ++step_number_;
  transport_.set_meanwhile(board_ && tells_ ? [this] { return steal(UINT32_MAX); } : std::function<bool()>());
  post_places();
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
  return any && std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
           return part.what.mode != RingMode::kPassQ && part.what.degree > 1;
         });
}

void RingAttention::attend(const LayerCall& call) {
  if (!status()) return;
  const Stopwatch watch;
  const double waited = transport_.waited_s();
  windows_[static_cast<size_t>(call.layer)] = call.window;
  attend_all(call);
  times_.exposed_s += transport_.waited_s() - waited;
  times_.total_s += watch.seconds();
  times_.layers += 1;
}

LayerCall RingAttention::own_call(const LayerCall& call) const {
  const int32_t row = now_->row_begin, end = row + size_of(rows(me()));
  LayerCall own = call;
  for (Tensor* tensor : {&own.q, &own.k, &own.v, &own.positions, &own.partial.out, &own.partial.lse})
    *tensor = tensor->slice(row, end);
  return own;
}

// A failure is in status(), for everyone who asks.
void RingAttention::attend_all(const LayerCall& call) {
  const auto passes_kv = [&](const Part& part) { return this->passes_kv(part); };
  if (!write_shared(call)) return;
  send_new(call);
  seal(call, true);
  // What is old may leave, and be attended to, while new tokens arrive.
  const auto first = std::find_if(parts_.begin(), parts_.end(), passes_kv);
  GODWIT_CHECK(!posted_ || posted_for_ == std::pair(call.layer, call.window), "layers come in another order");
  if (first != parts_.end() && !posted_) post_first(call);
  meets_ = true;
  if (!walk_shared(call, false)) return;
  if (first == parts_.end() && !meet(call)) return;
  if (!walk_shared(call, true)) return;
  for (const Part& part : parts_) {
    if (!passes_kv(part)) continue;
    now_ = &part;
    if (!pass_kv(own_call(call), rounds_of(call))) return;
  }
  if (!meet(call)) return;
  if (Status passed = pass_q(call); !passed) (void)transport_.fail(passed.error());  // no memory: nobody can go on
}

// With all ranks, once a layer, by whoever first comes to something new. Until then nobody waits for another's step.
Status RingAttention::meet(const LayerCall& call) {
  if (!std::exchange(meets_, false)) return status();
  const Part* now = now_;
  GODWIT_TRY(transport_.wait(pending_written_));
  GODWIT_TRY(take_new(call));
  seal(call, false);
  now_ = now;
  return {};
}

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
  run_plan(call, rows, pages.slab, pages.open_slab, state, resumes);
}

void RingAttention::walk_compact(const LayerCall& call, const Rows& rows, Tensor state) {
  const KvSequence& sequence = *now_->what.sequence;
  plan_.tiles.clear();
  plan_.pages.clear();
  for (int head = 0; head < shape_.kv_heads; ++head) {
    AttentionTile tile{0, static_cast<int32_t>(rows.q.shape[0]), head, static_cast<uint32_t>(plan_.pages.size())};
    sequence.list_pages(call.layer, head, 0, sequence.pages(call.layer, head), plan_.pages);
    tile.page_end = static_cast<uint32_t>(plan_.pages.size());
    if (tile.page_begin < tile.page_end) plan_.tiles.push_back(tile);
  }
  run_plan(call, rows, pool_.slab(call.layer), pool_.open_slab(), state, false);
}

void RingAttention::run_plan(const LayerCall& call, const Rows& rows, const std::byte* slab, const std::byte* open_slab,
                             Tensor state, bool resumes) {
  AttentionArgs args;
  args.format = format(call.layer);
  args.slab = slab;
  args.open_slab = open_slab;
  args.aux = pool_.aux_slab();
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
  const std::vector<std::byte> empty(kSegmentPages * kv_heads() * page_bytes(0));
  backend_.upload(pool_.slab() + page_index(pool_.spare_page(0, 0, false)) * page_bytes(0), empty);
  SegmentPages pages{pool_.slab(), pool_.open_slab(), {}, kSegmentPages};
  for (size_t i = 0; i < kv_heads() * kSegmentPages; ++i)
    pages.pages.push_back({.page = pool_.spare_page(i, 0, false),
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
    walk({}, rows, {0, 1}, pages, state_tensor(states(), row_count), false);
    best = std::min(best, watch.seconds());
  }
  times_ = before;
  return best;
}

}  // namespace godwit::dist
