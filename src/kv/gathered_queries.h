// Queries of a sequence that several processes computed, as if one had computed them all, to ask what they attend to in
// the slots that are here. One thread at a time, as the sequence.
#pragma once

#include "kv/gathered_slots.h"
#include "kv/slot_stats.h"

namespace godwit {

class GatheredQueries {
 public:
  // Rows of this process: q [any, q_heads, head_dim] and, where attention over all slots is done, lse [any, q_heads].
  struct Rows {
    std::span<const int32_t> positions;
    std::span<const int32_t> at = {};  // which rows of q and lse they are; empty: the first ones
    Tensor q, lse = {};
  };
  // Everyone's rows, in order of positions. All processes give lse, or none does.
  Status gather(Backend& backend, const Rows& mine, KvPeers& peers);
  // What attention() and observe() of these rows take beside pages and settings: queries, positions, and partials that
  // hold the lse that was gathered.
  void fill(AttentionArgs& args) const;

  // After attention() over the slots that are here: its lse becomes that over everyone's.
  Status merge_lse(Backend& backend, KvPeers& peers);
  // [rows, kv_heads] i32: slots that a row sees and others have, for ObserveArgs.
  Result<Tensor> seen_elsewhere(const KvSequence& sequence, int layer, int32_t window, KvPeers& peers);

 private:
  Status make_room(Backend& backend);
  Tensor lse() const;

  std::vector<int32_t> positions_;
  int64_t heads_ = 0, dim_ = 0;
  size_t room_ = 0;  // rows that the buffers have room for; everywhere the same
  Buffer q_, row_positions_, partial_, seen_;
};

}  // namespace godwit
