// The slots of a sequence that several processes keep together, as if one had them all: each tells the others what it
// knows of its own, and all then decide alike. Alone, they are the sequence's own.
#pragma once

#include <span>
#include <vector>

#include "kv/sequence.h"

namespace godwit {

// The processes that keep shares of a sequence. All of them make the same calls in the same order.
class KvPeers {
 public:
  virtual int rank() const = 0;  // of this one
  // Everyone's bytes, by rank; or the first status that is not well, if someone brings one instead of bytes.
  virtual Status gather(const Status& well, std::span<const std::byte> mine,
                        std::vector<std::vector<std::byte>>& all) = 0;
  // The first status that is not well, of whomever.
  virtual Status agree(const Status& mine) = 0;

 protected:
  ~KvPeers() = default;
};

class GatheredSlots {
 public:
  // Without slots that were demoted. `peers` may be null, and else live as long as this.
  static Result<GatheredSlots> gather(const KvSequence& sequence, KvPeers* peers);

  // Of each (layer, KV head) in order: positions of all slots, ascending.
  size_t heads() const { return positions_.size(); }
  const std::vector<int32_t>& positions(size_t head) const { return positions_[head]; }
  // Of the slots `kept` (ascending indices into positions), those that are here, as the sequence counts them without
  // the demoted ones.
  std::vector<uint32_t> own(size_t head, std::span<const uint32_t> kept) const;
  bool is_own(size_t head, uint32_t slot) const { return peers_ == nullptr || places_[head][slot].rank == rank_; }
  // Of heads from `first` on, `numbers` of the slots that are here, [own slots, width], become those of all, [slots,
  // width]; unless somewhere something is not `well`.
  Status spread(size_t first, size_t width, const Status& well, std::span<std::vector<float>> numbers) const;

 private:
  struct Place {
    uint32_t rank, slot;
  };

  KvPeers* peers_ = nullptr;
  uint32_t rank_ = 0;  // this one
  std::vector<std::vector<int32_t>> positions_;
  std::vector<std::vector<Place>> places_;  // of the same slots; empty without peers
};

}  // namespace godwit
