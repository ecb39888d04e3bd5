#include "dist/ring_choice.h"

#include <algorithm>
#include <cmath>

#include "dist/stopwatch.h"

namespace godwit::dist {
namespace {

// Seconds to send so much to the next rank while as much comes from the one before.
Result<double> send_seconds(Transport& transport, size_t bytes, int times) {
  Frame out(bytes), in(bytes);
  const int next = (transport.rank() + 1) % transport.size(),
            before = (transport.rank() + transport.size() - 1) % transport.size();
  double best = 1e9;
  for (int group = 0; group < 2; ++group) {
    GODWIT_TRY(transport.barrier());
    const Stopwatch watch;  // over several: each begins when the one before has arrived
    for (int i = 0; i < times; ++i) {
      std::vector<Transport::Pending> pending;
      transport.receive(before, in, FrameKind::kProbe, bytes, pending);
      transport.send({&next, 1}, out, FrameKind::kProbe, bytes, pending);
      GODWIT_TRY(transport.wait(pending));
    }
    best = std::min(best, watch.seconds() / times);
  }
  return best;
}

double token_bytes(const RingAttention& ring, const KvFormat& format) {
  return static_cast<double>(format.page_bytes()) / format.page_tokens * ring.shape().kv_heads;
}
double query_bytes(const RingAttention& ring) {
  return 4.0 * ring.shape().heads * ring.shape().head_dim;
}
double state_bytes(const RingAttention& ring) {
  return 4.0 * ring.shape().heads * static_cast<double>(attention_state_width(ring.shape().head_dim));
}

// How much of the others' pages comes in messages to rank 0: not what it reads in shared memory.
double sent_share(const RingAttention& ring, int ranks) {
  int sent = 0;
  for (int owner = 1; owner < ranks; ++owner) sent += ring.shared().reads(0, owner) ? 0 : 1;
  return ranks > 1 ? static_cast<double>(sent) / (ranks - 1) : 0;
}

}  // namespace

Result<RingCosts> measure_costs(Transport& transport, RingAttention& ring) {
  constexpr size_t kSmall = 64, kLarge = size_t{1} << 20;
  constexpr int kRows = 64;
  RingCosts costs;
  GODWIT_ASSIGN(const double small, send_seconds(transport, kSmall, 10));
  GODWIT_ASSIGN(const double large, send_seconds(transport, kLarge, 4));
  costs.link.send = {small, static_cast<double>(kLarge) / std::max(large - small, 1e-7)};
  costs.link.exchange = costs.link.send;
  costs.link.overlapped = ring.options().overlap;
  GODWIT_ASSIGN(const double one, ring.measure_segment(1));
  GODWIT_ASSIGN(const double many, ring.measure_segment(kRows));
  costs.row_s = std::max(0.0, many - one) / (kRows - 1);
  costs.segment_s = std::max(0.0, one - costs.row_s);
  return costs;
}

RingPrediction predict(const RingCosts& costs, const RingAttention& ring, const Shards& shards, const KvFormat& format,
                       Stretch step, int together) {
  const double ranks = shards.ranks(), tokens = step.end, fresh = step.size();
  const double segments = shards.segments(step.end), rows = std::ceil(fresh / ranks);
  const double seen = (step.begin + fresh / 2) / tokens;  // of the pairs, a causal step
  const double one = (costs.segment_s + rows * costs.row_s) * seen;
  RingWork work;
  work.ranks = shards.ranks();
  work.attention_step_s = segments / ranks * one;
  work.kv_bytes = tokens / ranks * token_bytes(ring, format) * sent_share(ring, shards.ranks());
  work.q_bytes = rows * query_bytes(ring);
  work.partial_bytes = rows * state_bytes(ring) * (ring.options().exact ? segments / ranks : 1.0);
  RingPrediction predicted;
  predicted.pass_kv_s = pass_kv_seconds(work, costs.link);
  // Queries meet whole segments: the rank that keeps most has most to do. Where ranks are without rows, there are fewer
  // to do it for.
  work.attention_step_s = std::ceil(segments / ranks) * one * std::min(1.0, fresh / ranks);
  RingConstants link = costs.link;
  link.send.latency_s /= together;
  link.exchange.latency_s /= together;
  predicted.pass_q_s = pass_q_seconds(work, link);
  if (shards.ranks() > 1) {  // new tokens must be with their keepers first; those of all sequences at once
    const double arrived_s = link.send.seconds(rows * (ranks - 1) / ranks * token_bytes(ring, format));
    if (!ring.shared().everybody_reads_all()) predicted.pass_kv_s += arrived_s;
    predicted.pass_q_s += arrived_s;
  }
  predicted.mode = predicted.pass_q_s < predicted.pass_kv_s ? RingMode::kPassQ : RingMode::kPassKv;
  return predicted;
}

RingBytes formula_bytes(const RingAttention& ring, const Shards& shards, const KvFormat& format, Stretch step,
                        RingMode mode) {
  const KvFormat written = format.seals ? format.open_format() : format;
  const double heads = ring.shape().kv_heads;
  RingBytes bytes;
  const bool written_there = mode != RingMode::kPassQ && ring.shared().everybody_reads_all();
  for (int rank = 0; rank < shards.ranks() && !written_there; ++rank) {
    std::vector<int> told(static_cast<size_t>(shards.ranks()));  // tokens, by keeper
    for (const Stretch& run : shards.rows(rank, step))
      for (int32_t position = run.begin; position < run.end; ++position)
        ++told[static_cast<size_t>(shards.keeper_of(position))];
    told[static_cast<size_t>(rank)] = 0;
    for (const int count : told) {  // in whole pages
      const int pages = (count + written.page_tokens - 1) / written.page_tokens;
      bytes.slots += heads * pages * static_cast<double>(written.page_bytes());
    }
  }
  for (int rank = 0; rank < shards.ranks(); ++rank) {
    const auto runs = shards.rows(rank, step);
    for (int32_t segment = 0; segment < shards.segments(step.end); ++segment) {
      if (shards.keeper(segment) == rank || runs.empty()) continue;
      const int32_t begin = segment * shards.segment_tokens(),
                    end = std::min(step.end, begin + shards.segment_tokens());
      const int first = begin / format.page_tokens, last = (end - 1) / format.page_tokens;
      if (mode != RingMode::kPassQ)
        for (int page = first; page <= last; ++page) {
          const PageForms forms = page_forms(format, step, page);
          bytes.pages += heads * static_cast<double>(ring.shared().reads(rank, shards.keeper(segment))
                                                         ? sizeof(PageId)
                                                         : (forms.sealed ? format.page_bytes() : 0) +
                                                               (forms.open ? written.page_bytes() : 0));
        }
      else if (ring.options().exact || segment < shards.ranks())
        bytes.states += size_of(runs) * state_bytes(ring);
    }
    const int others = std::min(shards.ranks(), shards.segments(step.end)) - (rank < shards.segments(step.end) ? 1 : 0);
    if (mode == RingMode::kPassQ) bytes.queries += size_of(runs) * query_bytes(ring) * others;
  }
  return bytes;
}

}  // namespace godwit::dist
