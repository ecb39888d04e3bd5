#include "kv/sequence.h"

#include <algorithm>
#include <cmath>

namespace godwit {

KvSequence::KvSequence(KvPool& pool, KvShape shape, KvShare share) : pool_(pool), shape_(shape), share_(share) {
  GODWIT_CHECK(shape.layers > 0 && shape.kv_heads > 0);
  GODWIT_CHECK(share.place >= -1 && share.place < share.ranks);
  heads_.resize(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.kv_heads));
  for (size_t i = 0; i < heads_.size(); ++i) heads_[i].layer = static_cast<int>(i) / shape.kv_heads;
  pool_.add_holder(this);
}

KvSequence::KvSequence(const KvSequence& other)
    : pool_(other.pool_),
      shape_(other.shape_),
      share_(other.share_),
      heads_(other.heads_),
      next_position_(other.next_position_),
      settled_(other.settled_),
      demoted_at_(other.demoted_at_) {
  GODWIT_CHECK(!other.sealing(), "a fork amid a step");
  for (const Head& head : heads_)
    for (PageId page : head.pages) pool_.ref(page);
  pool_.add_holder(this);
}

KvSequence::~KvSequence() {
  settle();
  pool_.remove_holder(this);
  for (const Head& head : heads_)
    for (PageId page : head.pages) pool_.unref(page);
}

std::unique_ptr<KvSequence> KvSequence::fork() const {
  return std::unique_ptr<KvSequence>(new KvSequence(*this));
}

const KvSequence::Head& KvSequence::at(int layer, int head) const {
  GODWIT_CHECK(layer >= 0 && layer < shape_.layers && head >= 0 && head < shape_.kv_heads);
  return heads_[static_cast<size_t>(layer) * static_cast<size_t>(shape_.kv_heads) + static_cast<size_t>(head)];
}

int32_t KvSequence::position(const Head& head, size_t slot) const {
  return pool_.position(head.pages[slot / page_tokens()], static_cast<uint32_t>(slot % page_tokens()));
}

int32_t KvSequence::position(int layer, int head, size_t slot) const {
  const Head& list = at(layer, head);
  GODWIT_CHECK(slot < list.count);
  return position(list, slot);
}

float KvSequence::bias(int layer, int head, size_t slot) const {
  const Head& list = at(layer, head);
  GODWIT_CHECK(slot < list.count);
  return pool_.bias(list.pages[slot / page_tokens()], static_cast<uint32_t>(slot % page_tokens()));
}

size_t KvSequence::slots_before(const Head& head, int32_t end_position) const {
  if (head.demoted > 0 && end_position < demoted_at_) return 0;
  size_t begin = 0, end = head.count;
  const auto look_at = [&](size_t slot) { position(head, slot) < end_position ? begin = slot + 1 : end = slot; };
  // Mostly the newest slots are asked about: from the end on, in steps that double.
  for (size_t step = 1; step <= end && begin == 0; step *= 2) look_at(end - step);
  while (begin < end) look_at(begin + (end - begin) / 2);
  return begin;
}

void KvSequence::list_pages(int layer, int head, size_t begin, size_t end, std::vector<PageRef>& refs,
                            size_t row) const {
  const Head& list = at(layer, head);
  GODWIT_CHECK(begin <= end && end <= list.pages.size());
  const size_t sealed_end = row == SIZE_MAX || list.twins.empty() ? SIZE_MAX : pool_.format().sealed_end(row);
  for (size_t i = begin; i < end; ++i) {
    const PageId page = i < sealed_end ? list.pages[i] : open_form(list, i);
    refs.push_back({.page = page,
                    .ordinal = static_cast<uint32_t>(i),
                    .first_position = pool_.first_position(page),
                    .count = std::min(page_tokens(), list.count - static_cast<uint32_t>(i) * page_tokens()),
                    .aux = pool_.aux(page)});
  }
}

size_t KvSequence::bytes() const {
  size_t total = 0;
  for (const Head& head : heads_)
    for (const auto* list : {&head.pages, &head.twins})
      for (PageId page : *list) total += pool_.bytes(page);
  return total;
}

size_t KvSequence::exclusive_bytes() const {
  size_t total = 0;
  for (const Head& head : heads_)
    for (const auto* list : {&head.pages, &head.twins})
      for (PageId page : *list) total += pool_.shared(page) ? 0 : pool_.bytes(page);
  return total;
}

bool KvSequence::holds_alone() const {
  const auto alone = [&](PageId page) { return pool_.firm_references(page) == 1; };
  return std::any_of(heads_.begin(), heads_.end(),
                     [&](const Head& head) { return std::any_of(head.pages.begin(), head.pages.end(), alone); });
}

size_t KvSequence::sealed_end(size_t slots, int32_t next_position) const {
  const KvFormat& format = pool_.format();
  return share_.whole() ? format.sealed_end(slots)
                        : share_.pages_of(format.sealed_end(static_cast<size_t>(next_position)));
}

KvNeed KvSequence::append_need(int tokens, int32_t first_position) const {
  KvNeed need;
  const KvFormat& format = pool_.format();
  const int32_t end = first_position + tokens;
  const std::vector<KvShare::Run> runs = share_.runs(first_position, end, format.page_tokens);
  std::vector<bool> gaps;  // pages from the last one on: whether positions are not consecutive there
  for (const Head& head : heads_) {
    const size_t first = head.count / page_tokens();
    uint32_t count = head.count;
    int32_t next = count > 0 ? position(head, count - 1) + 1 : 0;
    gaps.clear();
    for (const KvShare::Run& run : runs) {
      gaps.resize(count / page_tokens() - first + 1);
      if (count % page_tokens() != 0 && next != run.begin) gaps.back() = true;
      count += static_cast<uint32_t>(run.end - run.begin);
      next = run.end;
    }
    const auto gap = [&](size_t page) { return page >= first && page - first < gaps.size() && gaps[page - first]; };
    const auto was_explicit = [&](size_t page) {
      return page < head.pages.size() && pool_.is_explicit(head.pages[page]);
    };
    const size_t page_bytes = pool_.page_bytes(head.layer, format.seals);
    need.page_bytes += (pages_for(count) - head.pages.size()) * page_bytes;
    for (size_t i = sealed_end(head.count, next_position_); format.seals && i < sealed_end(count, end); ++i) {
      need.page_bytes += pool_.page_bytes(head.layer, false);
      need.aux += gap(i) || was_explicit(i) ? 1 : 0;
    }
    for (size_t i = first; i < first + gaps.size(); ++i) {
      const bool copied = i == first && i < head.pages.size() && pool_.shared(head.pages[i]);
      need.page_bytes += copied ? page_bytes : 0;
      need.aux += copied ? (gap(i) || was_explicit(i)) : (gap(i) && !was_explicit(i));
    }
  }
  return need;
}

KvOutcome KvSequence::append(int tokens, int32_t first_position) {
  GODWIT_CHECK(tokens >= 0 && first_position >= next_position_);
  GODWIT_CHECK(int64_t{first_position} + tokens <= INT32_MAX);
  settle();
  if (size_t missing = pool_.missing_pages(append_need(tokens, first_position)); missing > 0) return {missing};
  const int32_t end = first_position + tokens;
  const std::vector<KvShare::Run> runs = share_.runs(first_position, end, pool_.format().page_tokens);
  for (Head& head : heads_) extend(head, runs, end);
  next_position_ = end;
  pool_.flush_aux();
  return {};
}

void KvSequence::append_shared(std::span<const PageId> pages) {
  GODWIT_CHECK(pages.size() == heads_.size());
  for (size_t i = 0; i < heads_.size(); ++i) {
    Head& head = heads_[i];
    GODWIT_CHECK(head.count % page_tokens() == 0 && pool_.first_position(pages[i]) == next_position_);
    pool_.ref(pages[i]);
    head.pages.push_back(pages[i]);
    head.count += page_tokens();
  }
  next_position_ += static_cast<int32_t>(page_tokens());
}

bool KvSequence::list_column(size_t ordinal, bool open, std::vector<PageId>& pages) const {
  for (const Head& head : heads_) {
    GODWIT_CHECK((ordinal + 1) * page_tokens() <= head.count);
    PageId page = head.pages[ordinal];
    if (open && ordinal >= head.first_twin && ordinal - head.first_twin < head.twins.size())
      page = head.twins[ordinal - head.first_twin];
    if (is_open(page) != open) return false;
    pages.push_back(page);
  }
  return true;
}

void KvSequence::extend(Head& head, std::span<const KvShare::Run> runs, int32_t next_position) {
  const size_t sealed = sealed_end(head.count, next_position_);
  for (const KvShare::Run& run : runs) {
    if (const uint32_t filled = head.count % page_tokens(); filled > 0) {
      PageId& last = head.pages.back();
      if (pool_.shared(last)) replace_by_copy(last);
      if (position(head, head.count - 1) + 1 != run.begin) GODWIT_CHECK(pool_.make_explicit(last));
      if (pool_.is_explicit(last)) set_free_slots(last, filled, run.begin);
    }
    const uint32_t count = head.count + static_cast<uint32_t>(run.end - run.begin);
    while (head.pages.size() < pages_for(count)) {
      const auto ahead = static_cast<int32_t>(head.pages.size() * page_tokens() - head.count);
      std::optional<PageId> page = pool_.allocate(run.begin + ahead, pool_.format().seals, head.layer);
      GODWIT_CHECK(page.has_value());
      head.pages.push_back(*page);
    }
    head.count = count;
  }
  if (pool_.format().seals) seal(head, sealed, sealed_end(head.count, next_position));
}

void KvSequence::seal(Head& head, size_t begin, size_t end) {
  head.first_twin = static_cast<uint32_t>(begin);
  for (size_t i = begin; i < end; ++i) {
    const PageId open = head.pages[i];
    std::optional<PageId> sealed = pool_.allocate(pool_.first_position(open), false, head.layer);
    GODWIT_CHECK(sealed.has_value());
    if (pool_.is_explicit(open)) pool_.copy_slots(open, *sealed);
    head.twins.push_back(open);
    head.pages[i] = *sealed;
  }
}

PageId KvSequence::open_form(const Head& head, size_t ordinal) const {
  if (is_open(head.pages[ordinal])) return head.pages[ordinal];
  GODWIT_CHECK(ordinal >= head.first_twin && ordinal - head.first_twin < head.twins.size(), "page {} is sealed",
               ordinal);
  return head.twins[ordinal - head.first_twin];
}

PageId KvSequence::earlier_form(int layer, int head, size_t ordinal) const {
  const Head& list = at(layer, head);
  const bool both = ordinal >= list.first_twin && ordinal - list.first_twin < list.twins.size();
  return both ? list.twins[ordinal - list.first_twin] : list.pages[ordinal];
}

bool KvSequence::sealing() const {
  return std::any_of(heads_.begin(), heads_.end(), [](const Head& head) { return !head.twins.empty(); });
}

void KvSequence::list_seals(int layer, std::vector<KvSeal>& seals) const {
  for (int head = 0; head < shape_.kv_heads; ++head) {
    const Head& list = at(layer, head);
    for (size_t i = 0; i < list.twins.size(); ++i)
      seals.push_back(seal_of(list, list.twins[i], list.pages[list.first_twin + i]));
  }
}

void KvSequence::settle() {
  for (Head& head : heads_) {
    for (PageId page : head.twins) pool_.unref(page);
    head.twins.clear();
  }
  settled_ = next_position_;
}

int32_t KvSequence::shortest_exact() const {
  const KvFormat& format = pool_.format();
  if (!format.seals || format.demotes) return demoted_at_;
  if (!share_.whole()) {  // whichever share it is
    const size_t sealed = format.sealed_end(static_cast<size_t>(settled_));
    return sealed == format.sealed_begin() ? 0 : static_cast<int32_t>(sealed * page_tokens()) + format.open_last;
  }
  int32_t least = 0;
  for (const Head& head : heads_) {
    const size_t sealed = head.twins.empty() ? format.sealed_end(head.count) : head.first_twin;
    if (sealed == format.sealed_begin()) continue;
    const size_t slots = sealed * page_tokens() + static_cast<size_t>(format.open_last);
    least = std::max(least, position(head, slots - 1) + 1);
  }
  return least;
}

void KvSequence::replace_by_copy(PageId& page) {
  std::optional<PageId> copy = pool_.copy(page);
  GODWIT_CHECK(copy.has_value());
  pool_.unref(page);
  page = *copy;
}

// The whole rest of the page, not just the slots in need: later appends then find their positions uploaded already.
void KvSequence::set_free_slots(PageId page, uint32_t filled, int32_t first_position) {
  for (uint32_t slot = filled; slot < page_tokens(); ++slot)
    pool_.set_slot(page, slot, first_position + static_cast<int32_t>(slot - filled), 0);
}

void KvSequence::tail_slots(int layer, int tokens, std::vector<KvSlot>& slots) const {
  GODWIT_CHECK(tokens >= 0);
  for (int row = 0; row < tokens; ++row) {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      const Head& list = at(layer, head);
      GODWIT_CHECK(list.count >= static_cast<uint32_t>(tokens));
      const uint32_t slot = list.count - static_cast<uint32_t>(tokens - row);
      const size_t ordinal = slot / page_tokens();
      const PageId page = pool_.format().seals ? open_form(list, ordinal) : list.pages[ordinal];
      slots.push_back({page, slot % page_tokens()});
    }
  }
}

void KvSequence::truncate(int32_t end_position) {
  GODWIT_CHECK(end_position == 0 || end_position >= std::min(next_position_, shortest_exact()), "to {} of {} tokens",
               end_position, next_position_);
  for (Head& head : heads_) {
    head.count = static_cast<uint32_t>(slots_before(head, end_position));
    for (size_t i = 0; i < head.twins.size(); ++i) {
      const size_t ordinal = head.first_twin + i;
      const bool stays = ordinal < sealed_end(head.count, std::min(next_position_, end_position));
      pool_.unref(stays ? head.twins[i] : std::exchange(head.pages[ordinal], head.twins[i]));
    }
    head.twins.clear();
    for (size_t i = pages_for(head.count); i < head.pages.size(); ++i) pool_.unref(head.pages[i]);
    head.pages.resize(pages_for(head.count));
    head.demoted = std::min(head.demoted, static_cast<uint32_t>(head.pages.size()));
    if (head.count % page_tokens() > 0) pool_.touch(head.pages.back());  // what is appended now takes others' places
  }
  next_position_ = std::min(next_position_, end_position);
  settled_ = std::min(settled_, end_position);
  demoted_at_ = std::min(demoted_at_, end_position);
}

KvOutcome KvSequence::set_biases(int layer, int head, std::span<const uint32_t> slots, std::span<const float> biases) {
  Head& list = at(layer, head);
  GODWIT_CHECK(slots.size() == biases.size());
  std::vector<bool> changes(list.pages.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    GODWIT_CHECK(slots[i] < list.count && (i == 0 || slots[i] > slots[i - 1]) && !std::isnan(biases[i]));
    const uint32_t page = slots[i] / page_tokens();
    if (pool_.bias(list.pages[page], slots[i] % page_tokens()) != biases[i]) changes[page] = true;
  }
  KvNeed need;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (!changes[i]) continue;
    const bool copied = pool_.shared(list.pages[i]);
    need.page_bytes += copied ? pool_.page_bytes(layer, is_open(list.pages[i])) : 0;
    need.aux += copied || !pool_.is_explicit(list.pages[i]) ? 1 : 0;
  }
  if (size_t missing = pool_.missing_pages(need); missing > 0) return {missing};

  for (size_t i = 0; i < changes.size(); ++i) {
    if (!changes[i]) continue;
    if (pool_.shared(list.pages[i])) replace_by_copy(list.pages[i]);
    GODWIT_CHECK(pool_.make_explicit(list.pages[i]));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t page = slots[i] / page_tokens();
    if (changes[page]) pool_.set_slot(list.pages[page], slots[i] % page_tokens(), position(list, slots[i]), biases[i]);
  }
  pool_.flush_aux();
  return {};
}

void KvSequence::count_references(PageCounts& counts) const {
  for (const Head& head : heads_)
    for (const auto* list : {&head.pages, &head.twins})
      for (PageId page : *list) counts.add(page);
}

Status KvSequence::check_integrity() const {
  std::vector<PageId> all;
  for (size_t i = 0; i < heads_.size(); ++i) {
    const Head& head = heads_[i];
    const size_t layer = i / static_cast<size_t>(shape_.kv_heads), kv_head = i % static_cast<size_t>(shape_.kv_heads);
    if (head.pages.size() != pages_for(head.count))
      return errorf(ErrorCode::kBadData, "layer {} head {}: {} slots in {} pages", layer, kv_head, head.count,
                    head.pages.size());
    const KvFormat& format = pool_.format();
    for (size_t page = 0; page < head.pages.size(); ++page) {
      const bool sealed = format.demotes ? page < head.demoted
                                         : page >= sealed_begin() && page < sealed_end(head.count, next_position_);
      if (is_open(head.pages[page]) != (format.seals && !sealed))
        return errorf(ErrorCode::kBadData, "layer {} head {}: page {} of {} slots has the wrong form", layer, kv_head,
                      page, head.count);
    }
    int32_t previous = -1;
    for (size_t slot = 0; slot < head.count; ++slot) {
      const int32_t here = position(head, slot);
      if (slot % page_tokens() == 0 && slot <= size_t{head.demoted} * page_tokens()) previous = -1;
      if (here <= previous || here >= next_position_)
        return errorf(ErrorCode::kBadData, "layer {} head {} slot {}: position {} after {}, next token at {}", layer,
                      kv_head, slot, here, previous, next_position_);
      previous = here;
    }
    for (const auto* list : {&head.pages, &head.twins}) all.insert(all.end(), list->begin(), list->end());
  }
  for (PageId page : all)
    if (pool_.references(page) == 0) return errorf(ErrorCode::kBadData, "KV page {} is listed but free", page);
  std::sort(all.begin(), all.end());
  if (auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end())
    return errorf(ErrorCode::kBadData, "KV page {} is listed twice in one sequence", *twice);
  return {};
}

}  // namespace godwit
