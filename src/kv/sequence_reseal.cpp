// Other contents for pages of a head where the format seals. Codes of one page depend on each other
// (KvFormat::k_by_dim), so that a page that changes is decoded as a whole and sealed again; open pages go the same way,
// exactly.
#include <algorithm>

#include "kv/sequence_compaction.h"

namespace godwit {
namespace {

// Rows of K and V on the device.
struct Rows {
  Tensor k, v;
  Buffer memory;
};

Result<Rows> make_rows(const KvPool& pool, size_t count) {
  const auto rows = static_cast<int64_t>(count), dim = int64_t{pool.format().head_dim};
  Rows made;
  GODWIT_ASSIGN(made.memory, pool.backend().allocate(2 * count * static_cast<size_t>(dim) * sizeof(float)));
  made.k = Tensor(made.memory.data(), DType::kF32, {rows, dim});
  made.v = Tensor(made.memory.data() + made.k.bytes(), DType::kF32, {rows, dim});
  return made;
}

Result<Rows> read_rows(const KvPool& pool, int layer, std::span<const KvSlot> slots) {
  GODWIT_ASSIGN(Rows rows, make_rows(pool, slots.size()));
  pool.backend().kv_read({.format = pool.format(layer),
                          .slab = pool.slab(layer),
                          .slots = slots,
                          .k = rows.k,
                          .v = rows.v,
                          .open_slab = pool.open_slab()});
  return rows;
}

}  // namespace

// Rows are those of the pages, one after the other; an open page may have fewer than it has slots, if it is the last.
// Pages to be sealed are written as open ones first, to `beside`, which has room for that many.
void KvSequence::write_pages(const Head& head, std::span<const PageId> pages, const Tensor& k, const Tensor& v,
                             const Buffer& beside) {
  const auto size = static_cast<int64_t>(page_tokens());
  std::vector<KvSlot> slots;
  std::vector<KvSeal> seals;
  for (size_t i = 0; i < pages.size(); ++i) {
    const bool open = is_open(pages[i]);
    if (!open) seals.push_back(seal_of(head, static_cast<PageId>(seals.size()) | kOpenPage, pages[i]));
    const int64_t begin = static_cast<int64_t>(i) * size, end = std::min(k.shape[0], begin + size);
    slots.clear();
    for (uint32_t slot = 0; slot < static_cast<uint32_t>(end - begin); ++slot)
      slots.push_back({open ? pages[i] : seals.back().open, slot});
    const auto part = [&](const Tensor& x) {
      return Tensor(x.slice(begin, end).data, DType::kF32, {end - begin, 1, x.shape[1]});
    };
    pool_.backend().kv_write({.format = pool_.format(head.layer),
                              .slab = pool_.slab(head.layer),
                              .slots = slots,
                              .k = part(k),
                              .v = part(v),
                              .open_slab = open ? pool_.open_slab() : beside.data()});
  }
  if (!seals.empty())
    pool_.backend().kv_seal({.format = pool_.format(head.layer),
                             .open_slab = beside.data(),
                             .slab = pool_.slab(head.layer),
                             .pages = seals,
                             .aux = pool_.aux_slab()});
  pool_.backend().synchronize();
}

// Slot number order[i] becomes number i; within a page they ascend. `demoted` is Head::demoted from then on.
KvOutcome KvSequence::retain_sealed(Head& head, std::span<const uint32_t> order, uint32_t demoted) {
  GODWIT_CHECK(head.twins.empty() && share_.whole(), "a drop amid a step, or of a share");
  const KvFormat& format = pool_.format();
  size_t sealed_pages = 0;
  const auto opens = [&](size_t ordinal) {
    if (format.demotes) return ordinal >= demoted;
    return ordinal < format.sealed_begin() || ordinal >= format.sealed_end(order.size());
  };
  Compaction plan;
  for (size_t i = 0; i < order.size(); ++i) {
    GODWIT_CHECK(order[i] < head.count && (i % page_tokens() == 0 || order[i] > order[i - 1]));
    plan.positions.push_back(position(head, order[i]));
    plan.biases.push_back(pool_.bias(head.pages[order[i] / page_tokens()], order[i] % page_tokens()));
  }
  plan.stays.resize(head.pages.size());
  std::vector<KvSlot> sources;
  for (size_t begin = 0; begin < order.size(); begin += page_tokens()) {
    const size_t ordinal = begin / page_tokens(), end = std::min(begin + page_tokens(), order.size());
    const bool open = opens(ordinal);
    Compaction::Target target;
    target.untouched = order[begin] % page_tokens() == 0 && order[end - 1] - order[begin] == end - 1 - begin &&
                       is_open(head.pages[order[begin] / page_tokens()]) == open;
    if (target.untouched) {
      target.old_page = order[begin] / page_tokens();
      plan.stays[target.old_page] = true;
    } else {
      plan.need.page_bytes += pool_.page_bytes(head.layer, open);
      sealed_pages += open ? 0 : 1;
      for (size_t i = begin; i < end; ++i) {
        sources.push_back({head.pages[order[i] / page_tokens()], static_cast<uint32_t>(order[i] % page_tokens())});
        target.is_explicit |=
            plan.biases[i] != 0 || plan.positions[i] != plan.positions[begin] + static_cast<int32_t>(i - begin);
      }
      plan.need.aux += target.is_explicit ? 1 : 0;
    }
    plan.targets.push_back(target);
  }
  for (size_t i = 0; i < head.pages.size(); ++i)
    if (!plan.stays[i] && !pool_.shared(head.pages[i])) plan.need.freed_bytes += pool_.bytes(head.pages[i]);
  if (size_t missing = pool_.missing_pages(plan.need); missing > 0) return {missing};
  auto rows = read_rows(pool_, head.layer, sources);
  auto beside = pool_.backend().allocate(sealed_pages * format.open_format().page_bytes());
  if (!rows || !beside) return {std::max<size_t>(1, plan.need.page_bytes / pool_.smallest_page_bytes())};

  // Everything is read: what goes may go before its successor comes.
  for (size_t i = 0; i < head.pages.size(); ++i)
    if (!plan.stays[i]) pool_.unref(head.pages[i]);
  Head made;
  made.layer = head.layer;
  made.count = static_cast<uint32_t>(order.size());
  made.demoted = demoted;
  std::vector<PageId> changed;
  for (size_t ordinal = 0; ordinal < plan.targets.size(); ++ordinal) {
    const Compaction::Target& target = plan.targets[ordinal];
    if (target.untouched) {
      made.pages.push_back(head.pages[target.old_page]);
      continue;
    }
    std::optional<PageId> page = pool_.allocate(0, opens(ordinal), head.layer);
    GODWIT_CHECK(page.has_value());
    made.pages.push_back(*page);
    changed.push_back(*page);
  }
  place(made, plan);
  head = std::move(made);
  write_pages(head, changed, rows->k, rows->v, *beside);
  return {};
}

std::vector<uint32_t> KvSequence::demotion_order(size_t slots, std::span<const uint32_t> kept) {
  std::vector<uint32_t> order;
  for (uint32_t slot = 0, next = 0; slot < slots; ++slot) {
    if (next < kept.size() && kept[next] == slot) {
      ++next;
    } else {
      order.push_back(slot);
    }
  }
  order.insert(order.end(), kept.begin(), kept.end());
  GODWIT_CHECK(order.size() == slots, "slots to keep must ascend and exist");
  return order;
}

KvOutcome KvSequence::demote(int layer, int head, std::span<const uint32_t> kept) {
  Head& list = at(layer, head);
  GODWIT_CHECK(pool_.format().demotes);
  const size_t before = demoted(layer, head), sealed = list.count - kept.size();
  GODWIT_CHECK(sealed >= before && sealed % page_tokens() == 0 && (kept.empty() || kept[0] >= before),
               "{} of {} slots, {} of them sealed", sealed, list.count, before);
  if (sealed == before) return {};
  const std::vector<uint32_t> order = demotion_order(list.count, kept);
  KvOutcome outcome = retain_sealed(list, order, static_cast<uint32_t>(sealed / page_tokens()));
  if (outcome) demoted_at_ = next_position_;
  return outcome;
}

Status KvSequence::rewrite(int layer, int head, std::span<const uint32_t> slots, std::span<const float> keys,
                           std::span<const float> values) {
  const Head& list = at(layer, head);
  const auto dim = static_cast<size_t>(pool_.format().head_dim);
  GODWIT_CHECK(keys.size() == slots.size() * dim && values.size() == keys.size() && list.twins.empty());
  Backend& backend = pool_.backend();
  std::vector<PageId> pages;
  for (uint32_t slot : slots) {
    const PageId page = list.pages[slot / page_tokens()];
    if (pages.empty() || pages.back() != page) pages.push_back(page);
  }
  for (PageId page : pages) {
    GODWIT_CHECK(!pool_.shared(page));
    pool_.touch(page);
  }
  if (!pool_.format().seals) {
    std::vector<KvSlot> places;
    for (uint32_t slot : slots) places.push_back({list.pages[slot / page_tokens()], slot % page_tokens()});
    GODWIT_ASSIGN(Rows rows, make_rows(pool_, slots.size()));
    backend.upload(rows.k.data, std::as_bytes(keys));
    backend.upload(rows.v.data, std::as_bytes(values));
    const auto count = static_cast<int64_t>(slots.size()), numbers = static_cast<int64_t>(dim);
    backend.kv_write({.format = pool_.format(layer),
                      .slab = pool_.slab(layer),
                      .slots = places,
                      .k = Tensor(rows.k.data, DType::kF32, {count, 1, numbers}),
                      .v = Tensor(rows.v.data, DType::kF32, {count, 1, numbers})});
    backend.synchronize();
    return {};
  }
  // Page by page: those that change are read, get the new rows, and are written.
  GODWIT_ASSIGN(const Buffer beside, backend.allocate(pool_.format().open_format().page_bytes()));
  for (size_t begin = 0, end; begin < slots.size(); begin = end) {
    const uint32_t ordinal = slots[begin] / page_tokens();
    for (end = begin; end < slots.size() && slots[end] / page_tokens() == ordinal;) ++end;
    const uint32_t filled = std::min(page_tokens(), list.count - ordinal * page_tokens());
    std::vector<KvSlot> all;
    for (uint32_t slot = 0; slot < filled; ++slot) all.push_back({list.pages[ordinal], slot});
    GODWIT_ASSIGN(Rows rows, read_rows(pool_, layer, all));
    for (size_t i = begin; i < end; ++i) {
      const size_t at = slots[i] % page_tokens() * dim * sizeof(float);
      backend.upload(rows.k.data + at, std::as_bytes(keys.subspan(i * dim, dim)));
      backend.upload(rows.v.data + at, std::as_bytes(values.subspan(i * dim, dim)));
    }
    write_pages(list, {&list.pages[ordinal], 1}, rows.k, rows.v, beside);
  }
  return {};
}

}  // namespace godwit
