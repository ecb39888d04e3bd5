#include <algorithm>
#include <cmath>
#include <numeric>

#include "attn/page_bounds.h"
#include "attn/plan.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"share", "0.1", "share of a head's pages that a token reads"},
    {"least", "4", "pages that it reads at least"},
    {"repair", "32", "tokens after which their K and V are computed again densely; 0: never"},
};

// A page's score is the most that any of its keys could score: with the mean query of the heads that share it, the sum
// over dimensions of max(q * lowest, q * highest).
class Resa final : public AttentionPlanner {
 public:
  Resa(double share, size_t least, int repair) : share_(share), least_(least), repair_(repair) {}

  int repair_every() const override { return repair_; }

  void add(const PlanRequest& request, AttentionPlan& plan) override {
    for (const AttentionSegment& segment : request.segments) {
      const KvSequence& sequence = *segment.sequence;
      for (int32_t row = segment.row_begin; row < segment.row_end; ++row) {
        const int32_t position = segment.first_position + row - segment.row_begin;
        download_queries(sequence.pool(), request.q, row);
        for (int head = 0; head < sequence.shape().kv_heads; ++head)
          add_tile(request, sequence, row, position, head, plan);
      }
    }
  }

 private:
  void download_queries(const KvPool& pool, const Tensor& q, int32_t row) {
    const Tensor own = q.slice(row, row + 1);
    queries_.resize(own.bytes() / sizeof(float));
    pool.backend().download(std::as_writable_bytes(std::span(queries_)), own.data);
  }

  void add_tile(const PlanRequest& request, const KvSequence& sequence, int32_t row, int32_t position, int head,
                AttentionPlan& plan) {
    const KvPool& pool = sequence.pool();
    const auto page_tokens = static_cast<size_t>(pool.format().page_tokens);
    const int32_t begin_position = request.window > 0 ? position - request.window + 1 : INT32_MIN;
    const size_t begin_slot = sequence.slots_before(request.layer, head, begin_position);
    const size_t end_slot = sequence.slots_before(request.layer, head, position + 1);
    if (begin_slot >= end_slot) return;
    pages_.clear();
    sequence.list_pages(request.layer, head, begin_slot / page_tokens, (end_slot + page_tokens - 1) / page_tokens,
                        pages_, end_slot - 1);
    keep_best(pool, request.layer, head, sequence.shape().kv_heads);
    plan.tiles.push_back({.row_begin = row,
                          .row_end = row + 1,
                          .kv_head = head,
                          .page_begin = static_cast<uint32_t>(plan.pages.size()),
                          .page_end = static_cast<uint32_t>(plan.pages.size() + pages_.size())});
    plan.pages.insert(plan.pages.end(), pages_.begin(), pages_.end());
  }

  // Of pages_; the last one always stays.
  void keep_best(const KvPool& pool, int layer, int head, int kv_heads) {
    const auto wanted = static_cast<size_t>(std::ceil(share_ * static_cast<double>(pages_.size())));
    const size_t keep = std::max({wanted, least_, size_t{1}});
    if (pages_.size() <= keep) return;
    const std::span older(pages_.data(), pages_.size() - 1);  // all of them full
    bounds_.update(pool, layer, older);
    mean_query(static_cast<size_t>(head), static_cast<size_t>(kv_heads), static_cast<size_t>(pool.format().head_dim));
    scores_.resize(older.size());
    for (size_t i = 0; i < older.size(); ++i) scores_[i] = bounds_.score(older[i].page, mean_);
    order_.resize(older.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    // The better first; of equals the newer. A NaN is no better than anything.
    const auto better = [&](size_t a, size_t b) {
      const float x = std::isnan(scores_[a]) ? -INFINITY : scores_[a],
                  y = std::isnan(scores_[b]) ? -INFINITY : scores_[b];
      return x != y ? x > y : a > b;
    };
    std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(keep - 1), order_.end(), better);
    order_.resize(keep - 1);
    std::sort(order_.begin(), order_.end());
    for (size_t i = 0; i < order_.size(); ++i) pages_[i] = pages_[order_[i]];
    pages_[order_.size()] = pages_.back();
    pages_.resize(keep);
  }

  void mean_query(size_t head, size_t kv_heads, size_t dim) {
    const size_t group = queries_.size() / dim / kv_heads;
    mean_.assign(dim, 0);
    for (size_t i = 0; i < group; ++i)
      for (size_t d = 0; d < dim; ++d) mean_[d] += queries_[(head * group + i) * dim + d];
    for (float& x : mean_) x /= static_cast<float>(group);
  }

  double share_;
  size_t least_;
  int repair_;
  PageBounds bounds_;
  std::vector<PageRef> pages_;
  std::vector<float> queries_, mean_, scores_;
  std::vector<size_t> order_;
};

Result<std::unique_ptr<AttentionPlanner>> make(const MethodArgs& args) {
  GODWIT_ASSIGN(const double share, args.real("share", 0, 1));
  GODWIT_ASSIGN(const int64_t least, args.integer("least", 1, 1 << 20));
  GODWIT_ASSIGN(const int64_t repair, args.integer("repair", 0, 1 << 16));
  return std::make_unique<Resa>(share, static_cast<size_t>(least), static_cast<int>(repair));
}

}  // namespace

// Deviation: a block is a page of the cache, 64 tokens in place of 16.
extern const AttentionPlannerRow decode_planner_resa = {
    .info = {.name = "resa",
             .description = "pages by the most that a key of theirs could score; now and then repaired densely",
             .reference = "Sun et al., Rectified Sparse Attention, arXiv 2506.04108",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
