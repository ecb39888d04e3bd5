// Which tokens of a sequence one of several processes keeps: those of every `ranks`-th segment (attention.h), by
// position, from segment `place` on. So a page is kept whole or not at all, and where a token lies follows from its
// position alone. A process that keeps none of them has place -1. Pure functions.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/attention.h"

namespace godwit {

struct KvShare {
  int ranks = 1, place = 0;

  bool whole() const { return ranks == 1 && place == 0; }

  bool keeps(size_t page) const { return static_cast<int>(page / kSegmentPages % static_cast<size_t>(ranks)) == place; }
  // How many of the first `pages` pages of the sequence are kept.
  size_t pages_of(size_t pages) const {
    if (place < 0) return 0;
    const size_t round = kSegmentPages * static_cast<size_t>(ranks);
    const size_t skipped = kSegmentPages * static_cast<size_t>(place);
    const size_t rest = pages % round;
    return pages / round * kSegmentPages + std::min<size_t>(rest - std::min(rest, skipped), kSegmentPages);
  }

  struct Run {  // positions [begin, end)
    int32_t begin = 0, end = 0;
  };
  // Those of [begin, end) that are kept, ascending: one run for each segment, or one for all.
  std::vector<Run> runs(int32_t begin, int32_t end, int page_tokens) const {
    if (whole()) return begin < end ? std::vector<Run>{{begin, end}} : std::vector<Run>();
    const auto segment = static_cast<int32_t>(kSegmentPages) * page_tokens;
    std::vector<Run> kept;
    for (int32_t at = begin / segment; at * segment < end; ++at)
      if (at % ranks == place) kept.push_back({std::max(begin, at * segment), std::min(end, (at + 1) * segment)});
    return kept;
  }
};

}  // namespace godwit
