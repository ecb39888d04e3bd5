#include "dist/shares.h"

#include <algorithm>
#include <cstring>

namespace godwit::dist {
namespace {

constexpr int64_t kLongestNs = int64_t{1'000'000'000} * 86'400;  // a day: products below stay within 64 bits
constexpr int32_t kUnlikePercent = 8, kAlikePercent = 4;

}  // namespace

Status gather_busy(Transport& transport, int64_t mine_ns, std::vector<int64_t>& all_ns) {
  mine_ns = std::clamp<int64_t>(mine_ns, 0, kLongestNs);
  std::vector<std::byte> all;
  GODWIT_TRY(transport.all_gather(FrameKind::kReply, std::as_bytes(std::span(&mine_ns, 1)), all));
  all_ns.resize(static_cast<size_t>(transport.size()));
  std::memcpy(all_ns.data(), all.data(), all.size());
  for (size_t rank = 0; rank < all_ns.size(); ++rank)
    if (all_ns[rank] < 0 || all_ns[rank] > kLongestNs)
      return errorf(ErrorCode::kBadData, "rank {} says that a step took it {} ns, which cannot be", rank, all_ns[rank]);
  return {};
}

Shares next_speeds(const Shares& before, std::span<const int32_t> rows, std::span<const int64_t> busy_ns) {
  Shares speeds = before.empty() ? Shares(rows.size(), kWholeShare) : before;
  int32_t most_rows = 0, measured = 0;
  int64_t least_ns = INT64_MAX;  // of a row
  const auto row_ns = [&](size_t rank) { return std::max<int64_t>(1, busy_ns[rank] / rows[rank]); };
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] == 0) continue;
    ++measured;
    most_rows = std::max(most_rows, rows[rank]);
    least_ns = std::min(least_ns, row_ns(rank));
  }
  if (measured < 2 || most_rows < kTellingRows) return before;

  std::vector<int64_t> seen(rows.size());
  int64_t sum_before = 0, sum_seen = 0;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] == 0) continue;
    seen[rank] = std::max<int64_t>(kLeastShare, kWholeShare * least_ns / row_ns(rank));
    sum_before += speeds[rank];
    sum_seen += seen[rank];
  }
  // Half of what was known and half of what was seen: a step may be slow by chance, and a core may be slow from now on.
  for (size_t rank = 0; rank < rows.size(); ++rank)
    if (rows[rank] > 0)
      speeds[rank] = static_cast<int32_t>((speeds[rank] + seen[rank] * sum_before / sum_seen + 1) / 2);
  const int64_t most = *std::max_element(speeds.begin(), speeds.end());
  for (int32_t& speed : speeds)
    speed = std::max(kLeastShare, static_cast<int32_t>((speed * int64_t{kWholeShare} + most / 2) / most));
  return speeds;
}

Shares shares_for(const Shares& speeds, const Shares& before) {
  const int32_t percent = before.empty() ? kUnlikePercent : kAlikePercent;
  const bool differ = std::any_of(speeds.begin(), speeds.end(),
                                  [&](int32_t speed) { return speed * 100 < kWholeShare * (100 - percent); });
  return differ ? speeds : Shares();
}

}  // namespace godwit::dist
