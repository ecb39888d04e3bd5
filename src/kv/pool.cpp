#include "kv/pool.h"

#include <algorithm>
#include <bit>

namespace godwit {

Result<std::unique_ptr<KvPool>> KvPool::create(Backend& backend, const KvFormat& format, size_t budget_bytes,
                                               const SlabMemory& slab_memory, size_t spare_pages) {
  return create(backend, std::span(&format, 1), budget_bytes, slab_memory, spare_pages);
}

Result<std::unique_ptr<KvPool>> KvPool::create(Backend& backend, std::span<const KvFormat> layers, size_t budget_bytes,
                                               const SlabMemory& slab_memory, size_t spare_pages) {
  size_t smallest = SIZE_MAX;
  for (const KvFormat& format : layers) smallest = std::min(smallest, format.page_bytes());
  // What has no name cannot be used: some 200 GiB of the smallest pages that there are have one.
  const size_t named = (size_t{1} << kPageIndexBits) - spare_pages;
  std::unique_ptr<KvPool> pool(new KvPool(backend, std::min(budget_bytes, smallest * named), spare_pages));
  pool->smallest_page_bytes_ = smallest;
  std::vector<KvFormat>& formats = pool->formats_;
  for (const KvFormat& format : layers) {
    GODWIT_CHECK(format.head_dim > 0 && format.page_tokens > 0);
    GODWIT_CHECK(format.seals == layers[0].seals && format.head_dim == layers[0].head_dim);
    const auto same = std::find(formats.begin(), formats.end(), format);
    pool->layer_slabs_.push_back(static_cast<uint8_t>(same - formats.begin()));
    if (same != formats.end()) continue;
    GODWIT_CHECK(formats.size() < kOpen);
    formats.push_back(format);
    GODWIT_TRY(pool->allocate_slab(pool->slabs_[formats.size() - 1], format, slab_memory));
  }
  if (formats.size() == 1) pool->layer_slabs_.clear();
  const KvFormat& format = formats[0];
  if (format.seals) GODWIT_TRY(pool->allocate_slab(pool->slabs_[kOpen], format.open_format(), {}));
  // An aux entry belongs to a page in use, so there can't be more.
  pool->capacity_aux_ = pool->budget_bytes_ / (smallest + format.aux_bytes());  // open pages are larger
  return pool;
}

size_t KvPool::bytes_reserved() const {
  size_t bytes = aux_slab_.bytes;
  for (const Slab& slab : slabs_) bytes += slab.memory.bytes;
  return bytes;
}

Status KvPool::allocate_slab(Slab& slab, const KvFormat& format, const SlabMemory& slab_memory) {
  slab.page_bytes = format.page_bytes();
  slab.capacity = budget_bytes_ / slab.page_bytes;
  if (slab.capacity == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "a KV budget of {} bytes holds no page: one page of {} tokens takes {} bytes; give more",
                  budget_bytes_, format.page_tokens, slab.page_bytes);
  const size_t bytes = (slab.capacity + spare_pages_) * slab.page_bytes;
  auto memory = slab_memory ? slab_memory(bytes) : backend_.allocate(bytes);
  if (!memory)
    return errorf(memory.error().code, "no room for a KV cache of {} bytes: {}; give a smaller KV budget",
                  budget_bytes_, memory.error().message);
  slab.memory = std::move(*memory);
  return {};
}

KvPool::~KvPool() {
  GODWIT_CHECK(holders_.empty(), "a KV pool died before {} of its holders", holders_.size());
}

size_t KvPool::missing_pages(const KvNeed& need) {
  const size_t page = smallest_page_bytes_, aux = format().aux_bytes();
  const size_t with_pages = bytes_in_use() - need.freed_bytes + need.page_bytes;
  const size_t freed = need.freed_page_bytes + need.freed_aux * aux;
  const size_t highest = std::max(with_pages, with_pages - std::min(with_pages, freed) + need.aux * aux);
  if (highest > budget_bytes_) return (highest - budget_bytes_ + page - 1) / page;
  if (need.aux > 0 && !ensure_aux_slab()) return (need.aux * aux + page - 1) / page;
  return 0;
}

std::optional<PageId> KvPool::allocate(int32_t first_position, bool open, int layer) {
  return allocate_in(open ? kOpen : slab_of(layer), first_position);
}

std::optional<PageId> KvPool::allocate_in(size_t number, int32_t first_position) {
  Slab& slab = slabs_[number];
  ++changes_;
  if (bytes_in_use() + slab.page_bytes > budget_bytes_) return std::nullopt;
  PageId page;
  if (!slab.free.empty()) {
    page = slab.free.back();
    slab.free.pop_back();
  } else {
    page = static_cast<PageId>(slab.pages.size());
    GODWIT_CHECK(page < slab.capacity);
    slab.pages.emplace_back();
  }
  slab.pages[page] = {.references = 1, .first_position = first_position, .aux = kNoAux, .stamp = ++last_stamp_};
  ++slab.in_use;
  ++pages_in_use_;
  page_bytes_in_use_ += slab.page_bytes;
  note_peak();
  return page | static_cast<PageId>(number << kPageIndexBits);
}

std::optional<PageId> KvPool::copy(PageId page) {
  const size_t slab = page_slab(page);
  const KvNeed need{.page_bytes = slabs_[slab].page_bytes, .aux = is_explicit(page) ? 1u : 0u};
  if (missing_pages(need) > 0) return std::nullopt;
  const PageId made = *allocate_in(slab, at(page).first_position);
  backend_.kv_copy_page(is_open(page) ? format().open_format() : formats_[slab], slabs_[slab].memory.data(),
                        static_cast<PageId>(page_index(page)), static_cast<PageId>(page_index(made)));
  if (is_explicit(page)) copy_slots(page, made);
  return made;
}

void KvPool::copy_slots(PageId from, PageId to) {
  GODWIT_CHECK(make_explicit(to));
  const auto source = aux_host_.begin() + static_cast<ptrdiff_t>(at(from).aux * aux_words());
  std::copy_n(source, aux_words(), aux_host_.begin() + static_cast<ptrdiff_t>(at(to).aux * aux_words()));
}

void KvPool::ref(PageId page) {
  GODWIT_CHECK(page_index(page) < slabs_[page_slab(page)].pages.size() && at(page).references > 0);
  Page& info = at(page);
  if (info.kept && info.references == 1) --slabs_[page_slab(page)].only_kept;
  ++info.references;
  ++changes_;
}

void KvPool::unref(PageId page) {
  Slab& slab = slabs_[page_slab(page)];
  GODWIT_CHECK(page_index(page) < slab.pages.size() && at(page).references > 0);
  Page& info = at(page);
  --info.references;
  ++changes_;
  if (info.kept && info.references == 1) ++slab.only_kept;
  if (info.references > 0) return;
  free_aux(info);
  slab.free.push_back(static_cast<PageId>(page_index(page)));
  --slab.in_use;
  --pages_in_use_;
  page_bytes_in_use_ -= slab.page_bytes;
}

void KvPool::keep(PageId page) {
  Page& info = at(page);
  GODWIT_CHECK(!info.kept && !is_explicit(page));
  ref(page);
  info.kept = true;
}

void KvPool::give_up(PageId page) {
  Page& info = at(page);
  GODWIT_CHECK(info.kept);
  if (info.references == 1) --slabs_[page_slab(page)].only_kept;
  info.kept = false;
  unref(page);
}

bool KvPool::take_beside(size_t bytes) {
  if (bytes_in_use() + bytes > budget_bytes_) return false;
  beside_bytes_ += bytes;
  ++changes_;
  note_peak();
  return true;
}

void KvPool::give_beside(size_t bytes) {
  GODWIT_CHECK(bytes <= beside_bytes_);
  beside_bytes_ -= bytes;
  ++changes_;
}

size_t KvPool::bytes_if(const PageCounts& counts, const std::function<bool(PageId)>& counts_too) const {
  size_t total = 0;
  for (size_t slab = 0; slab < kSlabs; ++slab)
    for (size_t i = 0; i < counts.pages(slab); ++i)
      if (const auto page = static_cast<PageId>(slab << kPageIndexBits | i); counts.of(page) > 0 && counts_too(page))
        total += bytes(page);
  return total;
}

size_t KvPool::bytes_held_by(const PageCounts& counts) const {
  return bytes_if(counts, [&](PageId page) { return counts.of(page) == firm_references(page); });
}

size_t KvPool::bytes_of(const PageCounts& counts) const {
  return bytes_if(counts, [](PageId) { return true; });
}

size_t KvPool::kept_bytes() const {
  size_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += slab.only_kept * slab.page_bytes;
  return bytes;
}

int32_t KvPool::position(PageId page, uint32_t slot) const {
  const Page& info = at(page);
  if (info.aux == kNoAux) return info.first_position + static_cast<int32_t>(slot);
  return aux_host_[info.aux * aux_words() + slot];
}

float KvPool::bias(PageId page, uint32_t slot) const {
  const Page& info = at(page);
  if (info.aux == kNoAux) return 0;
  return std::bit_cast<float>(aux_host_[info.aux * aux_words() + static_cast<size_t>(format().page_tokens) + slot]);
}

bool KvPool::make_explicit(PageId page) {
  Page& info = at(page);
  GODWIT_CHECK(info.references == 1);
  if (info.aux != kNoAux) return true;
  if (bytes_in_use() + format().aux_bytes() > budget_bytes_ || !ensure_aux_slab()) return false;
  info.aux = take_aux();
  int32_t* words = &aux_host_[info.aux * aux_words()];
  for (int32_t slot = 0; slot < format().page_tokens; ++slot) {
    words[slot] = info.first_position + slot;
    words[format().page_tokens + slot] = std::bit_cast<int32_t>(0.0f);
  }
  return true;
}

void KvPool::make_implicit(PageId page, int32_t first_position) {
  Page& info = at(page);
  GODWIT_CHECK(info.references == 1);
  free_aux(info);
  info.first_position = first_position;
}

void KvPool::set_slot(PageId page, uint32_t slot, int32_t position, float bias) {
  const Page& info = at(page);
  GODWIT_CHECK(info.references == 1 && info.aux != kNoAux && slot < static_cast<uint32_t>(format().page_tokens));
  int32_t& position_word = aux_host_[info.aux * aux_words() + slot];
  int32_t& bias_word = aux_host_[info.aux * aux_words() + static_cast<size_t>(format().page_tokens) + slot];
  const auto bias_bits = std::bit_cast<int32_t>(bias);
  if (position_word == position && bias_word == bias_bits) return;
  position_word = position;
  bias_word = bias_bits;
  if (aux_changed_.empty() || aux_changed_.back() != info.aux) aux_changed_.push_back(info.aux);
}

void KvPool::flush_aux() {
  std::sort(aux_changed_.begin(), aux_changed_.end());
  aux_changed_.erase(std::unique(aux_changed_.begin(), aux_changed_.end()), aux_changed_.end());
  for (size_t begin = 0, end; begin < aux_changed_.size(); begin = end) {
    for (end = begin + 1; end < aux_changed_.size() && aux_changed_[end] == aux_changed_[end - 1] + 1;) ++end;
    const size_t first = aux_changed_[begin];
    std::span<const int32_t> words(&aux_host_[first * aux_words()], (end - begin) * aux_words());
    backend_.upload(aux_slab_.data() + first * format().aux_bytes(), std::as_bytes(words));
  }
  aux_changed_.clear();
}

bool KvPool::ensure_aux_slab() {
  if (aux_slab_.data() != nullptr) return true;
  auto slab = backend_.allocate(capacity_aux_ * format().aux_bytes());
  if (!slab) return false;
  aux_slab_ = std::move(*slab);
  return true;
}

uint32_t KvPool::take_aux() {
  uint32_t entry;
  if (!free_aux_.empty()) {
    entry = free_aux_.back();
    free_aux_.pop_back();
  } else {
    entry = static_cast<uint32_t>(aux_host_.size() / aux_words());
    GODWIT_CHECK(entry < capacity_aux_);
    aux_host_.resize(aux_host_.size() + aux_words());
  }
  ++aux_in_use_;
  note_peak();
  aux_changed_.push_back(entry);
  return entry;
}

void KvPool::free_aux(Page& page) {
  if (page.aux == kNoAux) return;
  free_aux_.push_back(page.aux);
  page.aux = kNoAux;
  --aux_in_use_;
}

void KvPool::note_peak() {
  peak_bytes_ = std::max(peak_bytes_, bytes_in_use());
}

void KvPool::add_holder(const PageHolder* holder) {
  holders_.push_back(holder);
}

void KvPool::remove_holder(const PageHolder* holder) {
  auto found = std::find(holders_.begin(), holders_.end(), holder);
  GODWIT_CHECK(found != holders_.end());
  *found = holders_.back();
  holders_.pop_back();
}

Status KvPool::check_integrity() const {
  constexpr auto kBroken = ErrorCode::kBadData;
  if (bytes_in_use() > budget_bytes_ || peak_bytes_ > budget_bytes_)
    return errorf(kBroken, "KV pool: {} bytes in use, {} at the peak, {} allowed", bytes_in_use(), peak_bytes_,
                  budget_bytes_);

  PageCounts expected;
  for (const PageHolder* holder : holders_) holder->count_references(expected);
  std::vector<bool> aux_seen(aux_host_.size() / aux_words());
  size_t used_aux = 0;
  size_t used_bytes = 0;
  for (size_t number = 0; number < kSlabs; ++number) {
    const Slab& slab = slabs_[number];
    size_t used = 0, only_kept = 0;
    if (expected.pages(number) > slab.pages.size())
      return errorf(kBroken, "holders have {} KV pages, the pool {}", expected.pages(number), slab.pages.size());
    for (PageId page = 0; page < slab.pages.size(); ++page) {
      const Page& info = slab.pages[page];
      const uint32_t held = expected.of(page | static_cast<PageId>(number << kPageIndexBits));
      if (info.references != held)
        return errorf(kBroken, "KV page {} counts {} references, its holders {}", page, info.references, held);
      used += info.references > 0 ? 1 : 0;
      only_kept += info.kept && info.references == 1 ? 1 : 0;
      if (info.aux == kNoAux) continue;
      if (info.references == 0 || info.aux >= aux_seen.size() || aux_seen[info.aux])
        return errorf(kBroken, "KV page {} has aux entry {}, which is not its own", page, info.aux);
      aux_seen[info.aux] = true;
      ++used_aux;
    }
    if (only_kept != slab.only_kept)
      return errorf(kBroken, "KV pool counts {} pages that are only kept; there are {}", slab.only_kept, only_kept);
    if (used != slab.in_use) return errorf(kBroken, "KV pool counts {} pages in use; there are {}", slab.in_use, used);
    used_bytes += used * slab.page_bytes;
    std::vector<bool> page_free(slab.pages.size());
    for (PageId page : slab.free) {
      if (page >= slab.pages.size() || slab.pages[page].references > 0 || page_free[page])
        return errorf(kBroken, "KV page {} is in the free list wrongly", page);
      page_free[page] = true;
    }
    if (slab.free.size() + used != slab.pages.size())
      return errorf(kBroken, "KV pool lost {} pages", slab.pages.size() - used - slab.free.size());
  }
  if (used_bytes != page_bytes_in_use_)
    return errorf(kBroken, "KV pool counts {} bytes of pages in use; there are {}", page_bytes_in_use_, used_bytes);
  if (used_aux != aux_in_use_)
    return errorf(kBroken, "KV pool counts {} aux entries in use; there are {}", aux_in_use_, used_aux);
  for (uint32_t entry : free_aux_) {
    if (entry >= aux_seen.size() || aux_seen[entry])
      return errorf(kBroken, "aux entry {} is in the free list wrongly", entry);
    aux_seen[entry] = true;
  }
  if (free_aux_.size() + used_aux != aux_seen.size())
    return errorf(kBroken, "KV pool lost {} aux entries", aux_seen.size() - used_aux - free_aux_.size());
  return {};
}

}  // namespace godwit
