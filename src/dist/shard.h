// Who does what: which rank computes a token of a step, and which rank keeps its K and V.
//
// Rows of a step are dealt out in zigzag: units of at most a page, 0 1 … N-1, then N-1 … 1 0, and so on, so that every
// rank sees about the same part of a causal prompt, and any stretch of it. Where ranks have unequal shares (shares.h),
// the largest has units of that length and the others shorter ones; steps of a few tokens are dealt out evenly. K and V
// are kept by *segment*, the tokens between two places where the attention walk restarts (attention.h): segment s
// belongs to rank s mod N, whoever computed it. So the place of a token follows from its position alone, generated
// tokens wander from rank to rank, every page is whole, and sums over segments can be taken together in order, to the
// bits of one rank.
//
// Sequences begin at different ranks (`first`): rank (first + i) mod N is to one what rank i is to another. So many
// short sequences are spread, too. Of `all` ranks only as many as its *degree* N take part in a sequence, from the
// first on; the others have nothing of it. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/shares.h"
#include "kv/share.h"

namespace godwit::dist {

struct Stretch {  // positions [begin, end)
  int32_t begin = 0, end = 0;
  int32_t size() const { return end - begin; }
  bool operator==(const Stretch&) const = default;
};

int32_t size_of(const std::vector<Stretch>& runs);

class Shards {
 public:
  Shards(int all, int page_tokens, int first = 0) : Shards(all, page_tokens, first, all) {}
  Shards(int all, int page_tokens, int first, int degree, const Shares& shares = {});

  int ranks() const { return ranks_; }  // that take part
  int32_t segment_tokens() const { return segment_tokens_; }
  int32_t segment_of(int32_t position) const { return position / segment_tokens_; }
  int32_t segments(int32_t tokens) const { return (tokens + segment_tokens_ - 1) / segment_tokens_; }
  int keeper(int32_t segment) const { return (segment % ranks_ + first_) % all_; }
  int keeper_of(int32_t position) const { return keeper(segment_of(position)); }

  // What a rank computes of a step over [step.begin, step.end): ascending, of no two ranks the same.
  std::vector<Stretch> rows(int rank, Stretch step) const;
  KvShare share(int rank) const;

  // The most tokens of a step where no rank may compute more than `most_rows`; and the most that a rank computes of a
  // step.
  int32_t step_tokens(int most_rows) const;
  int32_t most_rows(int32_t step_tokens) const;

 private:
  int32_t unit(int32_t step_tokens) const;
  int32_t dealt(int place, int32_t tokens) const;  // rows of a place where the largest share has so many
  int place(int rank) const { return (rank - first_ + all_) % all_; }

  int all_, ranks_, first_;
  int32_t page_tokens_, segment_tokens_;
  Shares parts_;  // by place
  int64_t largest_part_ = 0, sum_of_parts_ = 0;
};

}  // namespace godwit::dist
