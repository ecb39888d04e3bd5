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

Result<Rows> read_rows(const KvPool& pool, std::span<const KvSlot> slots) {
  GODWIT_ASSIGN(Rows rows, make_rows(pool, slots.size()));
  pool.backend().kv_read({.format = pool.format(),
                          .slab = pool.slab(),
                          .slots = slots,
                          .k = rows.k,
                          .v = rows.v,
                          .open_slab = pool.open_slab()});
  return rows;
}

}  // namespace

// Rows are those of the pages, one after the other; an open page may have fewer than it has slots, if it is the last.
// Pages to be sealed are written as open ones first, to `beside`, which has room for that many.
void KvSequence::write_pages(uint32_t table, std::span<const PageId> pages, const Tensor& k, const Tensor& v,
                             const Buffer& beside) {
  const auto size = static_cast<int64_t>(page_tokens());
  std::vector<KvSlot> slots;
  std::vector<KvSeal> seals;
  for (size_t i = 0; i < pages.size(); ++i) {
    const bool open = is_open(pages[i]);
    if (!open) seals.push_back({static_cast<PageId>(seals.size()) | kOpenPage, pages[i], table});
    const int64_t begin = static_cast<int64_t>(i) * size, end = std::min(k.shape[0], begin + size);
    slots.clear();
    for (uint32_t slot = 0; slot < static_cast<uint32_t>(end - begin); ++slot)
      slots.push_back({open ? pages[i] : seals.back().open, slot});
    const auto part = [&](const Tensor& x) {
      return Tensor(x.slice(begin, end).data, DType::kF32, {end - begin, 1, x.shape[1]});
    };
    pool_.backend().kv_write({.format = pool_.format(),
                              .slab = pool_.slab(),
                              .slots = slots,
                              .k = part(k),
                              .v = part(v),
                              .open_slab = open ? pool_.open_slab() : beside.data()});
  }
  if (!seals.empty())
    pool_.backend().kv_seal(
        {.format = pool_.format(), .open_slab = beside.data(), .slab = pool_.slab(), .pages = seals});
  pool_.backend().synchronize();
}

KvOutcome KvSequence::retain_sealed(Head& head, std::span<const uint32_t> kept) {
  GODWIT_CHECK(head.twins.empty(), "a drop amid a step");
  const KvFormat& format = pool_.format();
  Compaction plan;
  for (size_t i = 0; i < kept.size(); ++i) {
    GODWIT_CHECK(kept[i] < head.count && (i == 0 || kept[i] > kept[i - 1]));
    plan.positions.push_back(position(head, kept[i]));
    plan.biases.push_back(pool_.bias(head.pages[kept[i] / page_tokens()], kept[i] % page_tokens()));
  }
  plan.stays.resize(head.pages.size());
  std::vector<KvSlot> sources;
  for (size_t begin = 0; begin < kept.size(); begin += page_tokens()) {
    const size_t ordinal = begin / page_tokens(), end = std::min(begin + page_tokens(), kept.size());
    const bool open = ordinal < format.sealed_begin() || ordinal >= format.sealed_end(kept.size());
    Compaction::Target target;
    target.untouched = kept[begin] % page_tokens() == 0 && kept[end - 1] - kept[begin] == end - 1 - begin &&
                       is_open(head.pages[kept[begin] / page_tokens()]) == open;
    if (target.untouched) {
      target.old_page = kept[begin] / page_tokens();
      plan.stays[target.old_page] = true;
    } else {
      (open ? plan.need.open_pages : plan.need.pages) += 1;
      for (size_t i = begin; i < end; ++i) {
        sources.push_back({head.pages[kept[i] / page_tokens()], static_cast<uint32_t>(kept[i] % page_tokens())});
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
  auto rows = read_rows(pool_, sources);
  auto beside = pool_.backend().allocate(plan.need.pages * format.open_format().page_bytes());
  if (!rows || !beside) return {std::max<size_t>(1, plan.need.pages + plan.need.open_pages)};

  // Everything is read: what goes may go before its successor comes.
  for (size_t i = 0; i < head.pages.size(); ++i)
    if (!plan.stays[i]) pool_.unref(head.pages[i]);
  Head made;
  made.count = static_cast<uint32_t>(kept.size());
  std::vector<PageId> changed;
  for (size_t ordinal = 0; ordinal < plan.targets.size(); ++ordinal) {
    const Compaction::Target& target = plan.targets[ordinal];
    if (target.untouched) {
      made.pages.push_back(head.pages[target.old_page]);
      continue;
    }
    const bool open = ordinal < format.sealed_begin() || ordinal >= format.sealed_end(kept.size());
    std::optional<PageId> page = pool_.allocate(0, open);
    GODWIT_CHECK(page.has_value());
    made.pages.push_back(*page);
    changed.push_back(*page);
  }
  place(made, plan);
  head = std::move(made);
  write_pages(table_of(head), changed, rows->k, rows->v, *beside);
  return {};
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
    backend.kv_write({.format = pool_.format(),
                      .slab = pool_.slab(),
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
    GODWIT_ASSIGN(Rows rows, read_rows(pool_, all));
    for (size_t i = begin; i < end; ++i) {
      const size_t at = slots[i] % page_tokens() * dim * sizeof(float);
      backend.upload(rows.k.data + at, std::as_bytes(keys.subspan(i * dim, dim)));
      backend.upload(rows.v.data + at, std::as_bytes(values.subspan(i * dim, dim)));
    }
    write_pages(table_of(list), {&list.pages[ordinal], 1}, rows.k, rows.v, beside);
  }
  return {};
}

}  // namespace godwit
