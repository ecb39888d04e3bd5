// How many ranks take part in a sequence: chosen per prompt and answer, and keys and values moved where that changes.
#include <algorithm>
#include <cstring>

#include "dist/stopwatch.h"
#include "engine/team.h"

namespace godwit {
namespace {

// What a layer's attention would write, without it.
class NoAttention final : public LayerAttention {
 public:
  explicit NoAttention(Backend& backend) : backend_(backend) {}
  void attend(const LayerCall& call) override {
    zeros_.resize(call.partial.out.bytes());
    backend_.upload(call.partial.out.data, zeros_);
  }

 private:
  Backend& backend_;
  std::vector<std::byte> zeros_;
};

}  // namespace

// On every rank at once, as in a step. The first pass brings in the weights.
Status Team::measure_passes() {
  constexpr int kRows = 32;
  NoAttention none(*engine_.backend);
  const int most = std::min(kRows, engine_.options.prefill_chunk);
  double one = 1e9, many = 1e9;
  for (int rows : {1, 1, most, most}) {
    GODWIT_TRY(ranks_.transport.barrier());
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    const AttentionSegment segment{.row_begin = 0, .row_end = rows, .first_position = 0};
    const PlannedSegments group{nullptr, {&segment, 1}};
    const dist::Stopwatch watch;
    engine_.model->forward(*engine_.workspace, {.tokens = tokens, .groups = {&group, 1}, .attention = &none});
    engine_.backend->synchronize();
    double& best = rows == 1 ? one : many;
    best = std::min(best, watch.seconds());
  }
  costs_.pass_row_s = most > 1 ? std::max(0.0, many - one) / (most - 1) : one;
  costs_.pass_s = std::max(0.0, one - costs_.pass_row_s);
  return {};
}

dist::Shards Team::shards_of(const Member& member) const {
  return {size(), engine_.pool->format().page_tokens, member.first, member.degree, shares_};
}

dist::Shards Team::shards_of(int degree) const {
  return {size(), engine_.pool->format().page_tokens, 0, degree > 0 ? degree : size()};
}

double Team::predict_prompt(int32_t begin, int32_t end, int degree) const {
  const dist::Shards shards = shards_of(degree);
  const int32_t step = shards.step_tokens(engine_.options.prefill_chunk);
  const int layers = engine_.model->kv_shape().layers;
  double seconds = 0;
  for (int32_t at = begin; at < end; at += step) {
    const int32_t next = std::min(end, at + step);
    const dist::RingPrediction one = predict(at, next, degree);
    seconds += costs_.pass_s + costs_.pass_row_s * shards.most_rows(next - at) +
               layers * (mode_of(at, next, degree) == dist::RingMode::kPassQ ? one.pass_q_s : one.pass_kv_s);
  }
  return seconds;
}

// What one rank of the degree must hold, at most.
size_t Team::rank_bytes(const Room& room) const {
  const KvPool& pool = *engine_.pool;
  const KvShape shape = engine_.model->kv_shape();
  const dist::Shards shards = shards_of(room.degree);
  const int32_t kept = (shards.segments(room.tokens) + shards.ranks() - 1) / shards.ranks() * shards.segment_tokens();
  size_t bytes = 0;
  for (int layer = 0; layer < shape.layers; ++layer)
    bytes += pool.format(layer).most_bytes(static_cast<size_t>(std::min(room.entries, kept)),
                                           static_cast<size_t>(shards.step_tokens(engine_.options.prefill_chunk))) *
             static_cast<size_t>(shape.kv_heads);
  return bytes;
}

int Team::quickest_degree(int32_t begin, int32_t end) const {
  int best = size();
  double seconds = predict_prompt(begin, end, best);
  for (int degree = size() - 1; degree >= 1; --degree) {
    const double one = predict_prompt(begin, end, degree);
    if (one > seconds || rank_bytes({end, end, degree}) > engine_.pool->budget_bytes()) continue;
    seconds = one;
    best = degree;
  }
  return best;
}

Status Team::fit_prompt(uint64_t sequence, int32_t tokens) {
  const Member& member = sequences_.at(sequence);
  const int32_t begin = member.sequence->next_position();
  if (const int wanted = member.wants.prefill; wanted > 0) return share(sequence, wanted);
  // Where entries were dropped, no position says where the others are; and nothing moves when more come.
  if (member.retention) return member.compact() ? Status() : share(sequence, size());
  const int quickest = quickest_degree(begin, begin + tokens);
  return begin == 0 || quickest > member.degree ? share(sequence, quickest) : Status();
}

Status Team::fit_answer(uint64_t sequence) {
  const int wanted = sequences_.at(sequence).wants.decode;
  return wanted > 0 ? share(sequence, wanted) : Status();
}

bool Team::widen(uint64_t sequence) {
  const Member& member = sequences_.at(sequence);
  const bool fixed = member.wants.prefill > 0 || member.wants.decode > 0 || member.retention;
  return !fixed && member.degree < size() && share(sequence, size());
}

Status Team::share(uint64_t sequence, int degree) {
  Member& member = sequences_.at(sequence);
  if (member.degree == degree) return {};
  std::lock_guard lock(ranks_.mutex);
  GODWIT_TRY(tell({.verb = RankVerb::kShare, .sequence = sequence, .degree = degree}));
  return reshare(member, degree);
}

Status Team::reshare(Member& member, int degree) {
  GODWIT_CHECK(!member.compact());
  KvPool& pool = *engine_.pool;
  KvSequence& old = *member.sequence;
  const dist::Shards from = shards_of(member), to(size(), pool.format().page_tokens, member.first, degree);
  const std::unique_ptr<KvSequence> made = old.reshare(to.share(ranks_.transport.rank()));
  GODWIT_TRY(ranks_.agree(
      made ? Status()
           : errorf(
                 ErrorCode::kExhausted,
                 "the KV memory is full: {} of {} are in use, and there is no room to keep {} tokens on {} ranks; free "
                 "a session, raise the KV budget or give another number of ranks",
                 bytes_text(pool.bytes_in_use()), bytes_text(pool.budget_bytes()), old.next_position(), degree)));
  for (int layer = 0; layer < old.shape().layers; ++layer)
    for (int32_t segment = 0; segment < from.segments(old.next_position()); ++segment)
      GODWIT_TRY(move_segment(layer, segment, {&old, from}, {made.get(), to}));
  old.swap(*made);
  member.degree = degree;
  return {};
}

// Page by page as they are stored; which are sealed follows from positions, here and there.
Status Team::move_segment(int layer, int32_t segment, const Lies& from, const Lies& to) {
  const int me = ranks_.transport.rank(), giver = from.shards.keeper(segment), taker = to.shards.keeper(segment);
  if (giver == taker || (me != giver && me != taker)) return {};
  const KvPool& pool = *engine_.pool;
  const auto& [sequence, shards] = me == giver ? from : to;
  std::vector<PageRef> pages;
  const size_t first = static_cast<size_t>(segment / shards.ranks()) * kSegmentPages;
  for (int head = 0; head < sequence->shape().kv_heads; ++head)
    sequence->list_pages(layer, head, first, std::min(first + kSegmentPages, sequence->pages(layer, head)), pages);
  size_t bytes = 0;
  for (const PageRef& ref : pages) bytes += pool.page_bytes(layer, is_open(ref.page));
  const auto each = [&](const auto& copy) {
    std::span<std::byte> rest = frame_.payload(bytes);
    for (const PageRef& ref : pages) {
      const size_t size = pool.page_bytes(layer, is_open(ref.page));
      copy(rest.first(size), (is_open(ref.page) ? pool.open_slab() : pool.slab(layer)) + page_index(ref.page) * size);
      rest = rest.subspan(size);
    }
  };
  std::vector<dist::Transport::Pending> pending;
  if (me == giver) {
    each([&](std::span<std::byte> out, const std::byte* page) { engine_.backend->download(out, page); });
    ranks_.transport.send({&taker, 1}, frame_, dist::FrameKind::kMoved, bytes, pending);
  } else {
    ranks_.transport.receive(giver, frame_, dist::FrameKind::kMoved, bytes, pending);
  }
  GODWIT_TRY(ranks_.transport.wait(pending));
  if (me == taker) each([&](std::span<const std::byte> in, std::byte* page) { engine_.backend->upload(page, in); });
  return {};
}

}  // namespace godwit
