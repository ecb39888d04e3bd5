// Dropping slots of a head: which pages the rest goes to, what that takes, and the moves.
//
// Kept slot number n goes to slot n of the new list. A new page whose slots are the leading slots of one old page is
// that page, untouched and possibly shared. Any other is filled by moves, into an old page of this head alone or,
// failing that, a fresh one. Moves run in slot order, and an old page may be the target of a new page of equal or
// higher ordinal only: slots move down, so what such a move overwrites has been read before.
#include <algorithm>

#include "kv/sequence_compaction.h"

namespace godwit {

KvSequence::Compaction KvSequence::plan_compaction(const Head& head, std::span<const uint32_t> kept) const {
  Compaction plan;
  for (size_t i = 0; i < kept.size(); ++i) {
    GODWIT_CHECK(kept[i] < head.count && (i == 0 || kept[i] > kept[i - 1]));
    plan.positions.push_back(position(head, kept[i]));
    plan.biases.push_back(pool_.bias(head.pages[kept[i] / page_tokens()], kept[i] % page_tokens()));
  }

  plan.stays.resize(head.pages.size());
  std::vector<uint32_t> reusable;  // old pages that moves may fill, all at or before the current ordinal
  for (size_t begin = 0; begin < kept.size(); begin += page_tokens()) {
    const auto ordinal = static_cast<uint32_t>(begin / page_tokens());
    const size_t end = std::min(begin + page_tokens(), kept.size());
    Compaction::Target target;
    // Ascending indices: equal ends mean that everything between is there.
    target.untouched = kept[begin] % page_tokens() == 0 && kept[end - 1] - kept[begin] == end - 1 - begin;
    if (target.untouched) {
      target.old_page = kept[begin] / page_tokens();
      plan.stays[target.old_page] = true;
    }
    if (!plan.stays[ordinal] && !pool_.shared(head.pages[ordinal])) reusable.push_back(ordinal);
    if (!target.untouched) {
      for (size_t i = begin; i < end; ++i)
        target.is_explicit |=
            plan.biases[i] != 0 || plan.positions[i] != plan.positions[begin] + static_cast<int32_t>(i - begin);
      if (reusable.empty()) {
        plan.need.page_bytes += pool_.page_bytes(head.layer, false);
        plan.need.aux += target.is_explicit ? 1 : 0;
      } else {
        target.old_page = reusable.back();
        reusable.pop_back();
        plan.stays[target.old_page] = true;
        const bool was_explicit = pool_.is_explicit(head.pages[target.old_page]);
        plan.need.aux += target.is_explicit && !was_explicit ? 1 : 0;
        plan.need.freed_aux += !target.is_explicit && was_explicit ? 1 : 0;
      }
    }
    plan.targets.push_back(target);
  }
  for (size_t i = 0; i < head.pages.size(); ++i) {
    if (plan.stays[i] || pool_.shared(head.pages[i])) continue;
    plan.need.freed_page_bytes += pool_.page_bytes(head.layer, false);
    plan.need.freed_aux += pool_.is_explicit(head.pages[i]) ? 1 : 0;
  }
  return plan;
}

KvOutcome KvSequence::retain(int layer, int head, std::span<const uint32_t> kept) {
  Head& list = at(layer, head);
  if (kept.size() == list.count) return {};
  GODWIT_CHECK(list.demoted == 0, "a head that has demoted slots drops none");
  if (pool_.format().seals) return retain_sealed(list, kept, 0);
  const Compaction plan = plan_compaction(list, kept);
  if (size_t missing = pool_.missing_pages(plan.need); missing > 0) return {missing};

  Head made;
  made.layer = layer;
  made.count = static_cast<uint32_t>(kept.size());
  std::vector<KvMove> moves;
  for (size_t ordinal = 0; ordinal < plan.targets.size(); ++ordinal) {
    const Compaction::Target& target = plan.targets[ordinal];
    if (target.old_page == Compaction::kFresh) {
      std::optional<PageId> page = pool_.allocate(0, false, layer);
      GODWIT_CHECK(page.has_value());
      made.pages.push_back(*page);
    } else {
      made.pages.push_back(list.pages[target.old_page]);
    }
    if (target.untouched) continue;
    pool_.touch(made.pages.back());
    const size_t begin = ordinal * page_tokens(), end = std::min(begin + page_tokens(), kept.size());
    for (size_t i = begin; i < end; ++i) {
      const KvSlot from{list.pages[kept[i] / page_tokens()], kept[i] % page_tokens()};
      const KvSlot to{made.pages.back(), static_cast<uint32_t>(i - begin)};
      if (from.page != to.page || from.slot != to.slot) moves.push_back({from, to});
    }
  }
  if (!moves.empty()) pool_.backend().kv_move(pool_.format(layer), pool_.slab(layer), pool_.slab(layer), moves);

  // Give back before taking: the aux entries may need the room.
  for (size_t i = 0; i < list.pages.size(); ++i)
    if (!plan.stays[i]) pool_.unref(list.pages[i]);
  place(made, plan);
  list = std::move(made);
  return {};
}

// Positions and biases of the pages that are not untouched.
void KvSequence::place(const Head& made, const Compaction& plan) {
  for (size_t ordinal = 0; ordinal < plan.targets.size(); ++ordinal)
    if (const auto& target = plan.targets[ordinal]; !target.untouched && !target.is_explicit)
      pool_.make_implicit(made.pages[ordinal], plan.positions[ordinal * page_tokens()]);
  for (size_t ordinal = 0; ordinal < plan.targets.size(); ++ordinal) {
    if (!plan.targets[ordinal].is_explicit) continue;
    const PageId page = made.pages[ordinal];
    GODWIT_CHECK(pool_.make_explicit(page));
    const size_t begin = ordinal * page_tokens(), end = std::min(begin + page_tokens(), plan.positions.size());
    for (size_t i = begin; i < end; ++i)
      pool_.set_slot(page, static_cast<uint32_t>(i - begin), plan.positions[i], plan.biases[i]);
    set_free_slots(page, static_cast<uint32_t>(end - begin), next_position_);
  }
  pool_.flush_aux();
}

KvOutcome KvSequence::drop(int layer, int head, std::span<const uint32_t> dropped) {
  std::vector<uint32_t> kept;
  const uint32_t count = at(layer, head).count;
  size_t next = 0;
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (next < dropped.size() && dropped[next] == slot) {
      ++next;
    } else {
      kept.push_back(slot);
    }
  }
  GODWIT_CHECK(next == dropped.size(), "slots to drop must ascend and exist");
  return retain(layer, head, kept);
}

}  // namespace godwit
