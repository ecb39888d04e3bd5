#include "attn/shared_pages.h"

#include <algorithm>

namespace godwit {
namespace {

constexpr int32_t kFewRows = 16;  // more make good use of a page by themselves

class Finder {
 public:
  Finder(const AttentionPlan& plan, SharedPlan& found) : plan_(plan), found_(found), skip_(plan.tiles.size(), 0) {}

  bool run() {
    // Tiles of a head in the order of their rows.
    std::vector<uint32_t> order(plan_.tiles.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const AttentionTile &x = plan_.tiles[a], &y = plan_.tiles[b];
      return x.kv_head != y.kv_head ? x.kv_head < y.kv_head : x.row_begin < y.row_begin;
    });
    bool any = false;
    for (size_t begin = 0; begin < order.size();) {
      // One more tile joins as long as that saves more pages, or as many.
      size_t end = begin + 1, common = SIZE_MAX;
      for (; end < order.size() && follows(order[end - 1], order[end]); ++end) {
        const size_t count = end - begin, less = std::min(common, common_pages(order[begin], order[end]));
        if (less == 0 || (count > 1 && count * less < (count - 1) * common)) break;
        common = less;
      }
      if (end - begin > 1) {
        any = true;
        share(std::span(order).subspan(begin, end - begin), common);
      }
      begin = end;
    }
    if (any) keep_rest();
    return any;
  }

 private:
  std::span<const PageRef> pages(const AttentionTile& tile) const {
    return std::span(plan_.pages).subspan(tile.page_begin, tile.page_end - tile.page_begin);
  }
  bool follows(uint32_t a, uint32_t b) const {
    const AttentionTile &x = plan_.tiles[a], &y = plan_.tiles[b];
    return x.kv_head == y.kv_head && x.row_end == y.row_begin && x.row_end - x.row_begin <= kFewRows &&
           y.row_end - y.row_begin <= kFewRows;
  }
  // In whole segments.
  size_t common_pages(uint32_t a, uint32_t b) const {
    const auto x = pages(plan_.tiles[a]), y = pages(plan_.tiles[b]);
    const auto same = [](const PageRef& p, const PageRef& q) {
      return p.page == q.page && p.ordinal == q.ordinal && p.count == q.count && p.aux == q.aux;
    };
    auto count = static_cast<size_t>(std::mismatch(x.begin(), x.end(), y.begin(), y.end(), same).first - x.begin());
    while (count > 0 && (x[count - 1].ordinal + 1) % kSegmentPages != 0) --count;
    return count;
  }

  void share(std::span<const uint32_t> tiles, size_t count) {
    const AttentionTile &first = plan_.tiles[tiles.front()], &last = plan_.tiles[tiles.back()];
    add(found_.shared, {.row_begin = first.row_begin, .row_end = last.row_end, .kv_head = first.kv_head},
        pages(first).first(count));
    for (uint32_t tile : tiles) skip_[tile] = count;
  }
  void keep_rest() {
    for (size_t i = 0; i < skip_.size(); ++i)
      if (const auto left = pages(plan_.tiles[i]).subspan(skip_[i]); !left.empty())
        add(found_.rest, plan_.tiles[i], left);
  }
  static void add(AttentionPlan& plan, AttentionTile tile, std::span<const PageRef> pages) {
    tile.page_begin = static_cast<uint32_t>(plan.pages.size());
    plan.pages.insert(plan.pages.end(), pages.begin(), pages.end());
    tile.page_end = static_cast<uint32_t>(plan.pages.size());
    plan.tiles.push_back(tile);
  }

  const AttentionPlan& plan_;
  SharedPlan& found_;
  std::vector<size_t> skip_;  // pages of each tile that a shared one has
};

}  // namespace

bool find_shared_pages(const AttentionPlan& plan, SharedPlan& found) {
  found = {};
  return Finder(plan, found).run();
}

void attend_sharing(Backend& backend, const AttentionArgs& args, const Tensor& state) {
  SharedPlan split;
  if (!find_shared_pages(*args.plan, split)) return backend.attention(args);
  AttentionArgs part = args;
  part.partial = {};
  part.state = state;
  part.plan = &split.shared;
  backend.attention(part);
  part.plan = &split.rest;
  part.resumes = true;
  backend.attention(part);
  backend.finish_attention({.format = args.format, .states = {&state, 1}, .partial = args.partial});
}

}  // namespace godwit
