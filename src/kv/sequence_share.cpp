// A sequence that is to be kept by other processes than before.
#include "kv/sequence.h"

namespace godwit {

std::unique_ptr<KvSequence> KvSequence::reshare(KvShare share) const {
  GODWIT_CHECK(!sealing());
  const KvFormat& format = pool_.format();
  const auto next = static_cast<size_t>(next_position_);
  const auto opens = [&](size_t page) {
    return format.seals && (page < format.sealed_begin() || page >= format.sealed_end(next));
  };
  uint32_t slots = 0;
  for (const KvShare::Run& run : share.runs(0, next_position_, format.page_tokens))
    slots += static_cast<uint32_t>(run.end - run.begin);
  KvNeed need;
  for (const Head& head : heads_)
    for (size_t page = 0; page < pages_for(next); ++page)
      if (share.keeps(page) && !share_.keeps(page)) need.page_bytes += pool_.page_bytes(head.layer, opens(page));
  if (pool_.missing_pages(need) > 0) return nullptr;
  auto made = std::make_unique<KvSequence>(pool_, shape_, share);
  for (size_t i = 0; i < heads_.size(); ++i) {
    const Head& from = heads_[i];
    Head& head = made->heads_[i];
    head.count = slots;
    for (size_t page = 0; page < pages_for(next); ++page) {
      if (!share.keeps(page)) continue;
      if (share_.keeps(page)) {
        head.pages.push_back(from.pages[share_.pages_of(page)]);
        pool_.ref(head.pages.back());
        continue;
      }
      const auto first = static_cast<int32_t>(page * page_tokens());
      const std::optional<PageId> fresh = pool_.allocate(first, opens(page), head.layer);
      GODWIT_CHECK(fresh.has_value());
      head.pages.push_back(*fresh);
    }
  }
  made->next_position_ = made->settled_ = next_position_;
  return made;
}

void KvSequence::swap(KvSequence& other) {
  GODWIT_CHECK(&pool_ == &other.pool_ && heads_.size() == other.heads_.size() && !sealing() && !other.sealing());
  std::swap(share_, other.share_);
  std::swap(heads_, other.heads_);
  std::swap(next_position_, other.next_position_);
  std::swap(settled_, other.settled_);
  std::swap(demoted_at_, other.demoted_at_);
}

}  // namespace godwit
