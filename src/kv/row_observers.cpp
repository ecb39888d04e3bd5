#include "kv/row_observers.h"

namespace godwit {

void RowObservers::attended(int layer, const AttentionArgs& args) {
  AttentionPlan own;
  for (const Entry& entry : list_) {
    own.tiles.clear();
    own.pages.clear();
    for (AttentionTile tile : args.plan->tiles) {
      if (tile.row_begin < entry.row_begin || tile.row_begin >= entry.row_end) continue;
      GODWIT_CHECK(tile.row_end <= entry.row_end, "a tile has rows of two sequences");
      const auto pages = std::span(args.plan->pages).subspan(tile.page_begin, tile.page_end - tile.page_begin);
      tile.row_begin -= entry.row_begin;
      tile.row_end -= entry.row_begin;
      tile.page_begin = static_cast<uint32_t>(own.pages.size());
      own.pages.insert(own.pages.end(), pages.begin(), pages.end());
      tile.page_end = static_cast<uint32_t>(own.pages.size());
      own.tiles.push_back(tile);
    }
    AttentionArgs part = args;
    part.plan = &own;
    part.q = args.q.slice(entry.row_begin, entry.row_end);
    part.positions = args.positions.slice(entry.row_begin, entry.row_end);
    part.partial = {args.partial.out.slice(entry.row_begin, entry.row_end),
                    args.partial.lse.slice(entry.row_begin, entry.row_end)};
    entry.observer->attended(layer, part);
  }
}

}  // namespace godwit
