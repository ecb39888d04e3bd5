#include "dist/shard.h"

#include <algorithm>

#include "backend/attention.h"

namespace godwit::dist {

int32_t size_of(const std::vector<Stretch>& runs) {
  int32_t total = 0;
  for (const Stretch& run : runs) total += run.size();
  return total;
}

Shards::Shards(int all, int page_tokens, int first, int degree)
    : all_(all),
      ranks_(degree),
      first_(first),
      page_tokens_(page_tokens),
      segment_tokens_(static_cast<int32_t>(kSegmentPages) * static_cast<int32_t>(page_tokens)) {
  GODWIT_CHECK(degree > 0 && degree <= all && page_tokens > 0 && first >= 0 && first < all);
}

// Two for everyone where the step is short.
int32_t Shards::unit(int32_t step_tokens) const {
  return std::clamp((step_tokens + 2 * ranks_ - 1) / (2 * ranks_), 1, page_tokens_);
}

std::vector<Stretch> Shards::rows(int rank, Stretch step) const {
  const int32_t unit = this->unit(step.size());
  std::vector<Stretch> runs;
  rank = place(rank);
  if (rank >= ranks_) return runs;
  for (int32_t deal = 0;; ++deal) {
    const int32_t index = deal * ranks_ + (deal % 2 == 0 ? rank : ranks_ - 1 - rank);
    const Stretch run{step.begin + index * unit, std::min(step.end, step.begin + (index + 1) * unit)};
    if (step.begin + deal * ranks_ * unit >= step.end) return runs;
    if (run.begin >= run.end) continue;
    if (!runs.empty() && runs.back().end == run.begin) {
      runs.back().end = run.end;
    } else {
      runs.push_back(run);
    }
  }
}

KvShare Shards::share(int rank) const {
  return {.ranks = ranks_, .place = place(rank) < ranks_ ? place(rank) : -1};
}

int32_t Shards::step_tokens(int most_rows) const {
  const int32_t rows =
      most_rows >= 2 * page_tokens_ ? most_rows / page_tokens_ * page_tokens_ : std::max(1, most_rows / 2 * 2);
  return rows * ranks_;
}

int32_t Shards::most_rows(int32_t step_tokens) const {
  int32_t most = 0;
  for (int rank = 0; rank < all_; ++rank) most = std::max(most, size_of(rows(rank, {0, step_tokens})));
  return most;
}

}  // namespace godwit::dist
