#include "dist/shard.h"

#include <algorithm>

#include "backend/attention.h"

namespace godwit::dist {
namespace {

constexpr int32_t kEvenTokens = 16;  // of a rank: shorter steps are dealt out evenly

}  // namespace

int32_t size_of(const std::vector<Stretch>& runs) {
  int32_t total = 0;
  for (const Stretch& run : runs) total += run.size();
  return total;
}

Shards::Shards(int all, int page_tokens, int first, int degree, const Shares& shares)
    : all_(all),
      ranks_(degree),
      first_(first),
      page_tokens_(page_tokens),
      segment_tokens_(static_cast<int32_t>(kSegmentPages) * static_cast<int32_t>(page_tokens)) {
  GODWIT_CHECK(degree > 0 && degree <= all && page_tokens > 0 && first >= 0 && first < all);
  GODWIT_CHECK(shares.empty() || shares.size() == static_cast<size_t>(all));
  for (int place = 0; place < ranks_; ++place) {
    parts_.push_back(shares.empty() ? kWholeShare : shares[static_cast<size_t>((first_ + place) % all_)]);
    GODWIT_CHECK(parts_.back() > 0);
    largest_part_ = std::max<int64_t>(largest_part_, parts_.back());
    sum_of_parts_ += parts_.back();
  }
}

// Two for everyone where the step is short.
int32_t Shards::unit(int32_t step_tokens) const {
  const int64_t of_all = 2 * sum_of_parts_;
  return static_cast<int32_t>(
      std::clamp<int64_t>((step_tokens * largest_part_ + of_all - 1) / of_all, 1, page_tokens_));
}

// Rounded up, so that as many deals hold a step as if all were alike; and over all deals together, so that it is once.
int32_t Shards::dealt(int place, int32_t tokens) const {
  const int64_t part = parts_[static_cast<size_t>(place)];
  return static_cast<int32_t>((tokens * part + largest_part_ - 1) / largest_part_);
}

std::vector<Stretch> Shards::rows(int rank, Stretch step) const {
  if (step.size() < kEvenTokens * ranks_ && sum_of_parts_ < largest_part_ * ranks_)
    return Shards(all_, page_tokens_, first_, ranks_).rows(rank, step);
  const int32_t unit = this->unit(step.size());
  std::vector<Stretch> runs;
  rank = place(rank);
  if (rank >= ranks_) return runs;
  int32_t at = step.begin;
  for (int32_t deal = 0; at < step.end; ++deal)
    for (int i = 0; i < ranks_; ++i) {
      const int place = deal % 2 == 0 ? i : ranks_ - 1 - i;
      const int32_t begin = at;
      at = std::min(step.end, begin + dealt(place, (deal + 1) * unit) - dealt(place, deal * unit));
      if (place != rank || begin == at) continue;
      if (!runs.empty() && runs.back().end == begin) {
        runs.back().end = at;
      } else {
        runs.push_back({begin, at});
      }
    }
  return runs;
}

KvShare Shards::share(int rank) const {
  return {.ranks = ranks_, .place = place(rank) < ranks_ ? place(rank) : -1};
}

int32_t Shards::step_tokens(int most_rows) const {
  const bool pages = most_rows >= 2 * page_tokens_;
  const int32_t rows = pages ? most_rows / page_tokens_ * page_tokens_ : std::max(1, most_rows / 2 * 2);
  if (rows < kEvenTokens) return rows * ranks_;
  if (!pages) return static_cast<int32_t>(rows * sum_of_parts_ / largest_part_);
  int32_t tokens = 0;
  for (int place = 0; place < ranks_; ++place) tokens += dealt(place, rows);
  return tokens;
}

int32_t Shards::most_rows(int32_t step_tokens) const {
  int32_t most = 0;
  for (int rank = 0; rank < all_; ++rank) most = std::max(most, size_of(rows(rank, {0, step_tokens})));
  return most;
}

}  // namespace godwit::dist
