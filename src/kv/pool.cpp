#include "kv/pool.h"

#include <algorithm>
#include <bit>

namespace godwit {

KvPool::KvPool(Backend& backend, const KvFormat& format, size_t budget_bytes)
    : backend_(backend),
      format_(format),
      budget_bytes_(budget_bytes),
      capacity_pages_(std::min<size_t>(budget_bytes / format.page_bytes(), kNoAux)),
      // An aux entry belongs to a page in use, so there can't be more.
      capacity_aux_(std::min(budget_bytes / (format.page_bytes() + format.aux_bytes()), capacity_pages_)) {}

Result<std::unique_ptr<KvPool>> KvPool::create(Backend& backend, const KvFormat& format, size_t budget_bytes) {
  GODWIT_CHECK(format.head_dim > 0 && format.page_tokens > 0);
  std::unique_ptr<KvPool> pool(new KvPool(backend, format, budget_bytes));
  if (pool->capacity_pages_ == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "a KV budget of {} bytes holds no page: one page of {} tokens takes {} bytes; give more",
                  budget_bytes, format.page_tokens, format.page_bytes());
  auto slab = backend.allocate(pool->capacity_pages_ * format.page_bytes());
  if (!slab)
    return errorf(slab.error().code, "no room for a KV cache of {} bytes: {}; give a smaller KV budget", budget_bytes,
                  slab.error().message);
  pool->slab_ = std::move(*slab);
  if (format.seals) {
    GODWIT_ASSIGN(pool->open_, create(backend, format.open_format(), budget_bytes));
    pool->open_->sealed_ = pool.get();
  }
  return pool;
}

KvPool::~KvPool() {
  GODWIT_CHECK(holders_.empty(), "a KV pool died before {} of its holders", holders_.size());
}

size_t KvPool::missing_pages(const KvNeed& need) {
  const size_t page = format_.page_bytes(), aux = format_.aux_bytes();
  const size_t open = open_ ? open_->format_.page_bytes() : 0;
  const size_t with_pages = all_bytes_in_use() + need.pages * page + need.open_pages * open;
  const size_t freed = need.freed_pages * page + need.freed_aux * aux;
  const size_t highest = std::max(with_pages, with_pages - std::min(with_pages, freed) + need.aux * aux);
  if (highest > budget_bytes_) return (highest - budget_bytes_ + page - 1) / page;
  if (need.aux > 0 && !ensure_aux_slab()) return (need.aux * aux + page - 1) / page;
  return 0;
}

std::optional<PageId> KvPool::allocate(int32_t first_position) {
  if (all_bytes_in_use() + format_.page_bytes() > budget_bytes_) return std::nullopt;
  PageId page;
  if (!free_pages_.empty()) {
    page = free_pages_.back();
    free_pages_.pop_back();
  } else {
    page = static_cast<PageId>(pages_.size());
    GODWIT_CHECK(page < capacity_pages_);
    pages_.emplace_back();
  }
  pages_[page] = {.references = 1, .first_position = first_position, .aux = kNoAux};
  ++pages_in_use_;
  note_peak();
  return page;
}

std::optional<PageId> KvPool::copy(PageId page) {
  if (missing_pages({.pages = 1, .aux = is_explicit(page) ? 1u : 0u}) > 0) return std::nullopt;
  const PageId made = *allocate(pages_[page].first_position);
  backend_.kv_copy_page(format_, slab(), page, made);
  if (is_explicit(page)) {
    GODWIT_CHECK(make_explicit(made));
    auto from = aux_host_.begin() + static_cast<ptrdiff_t>(pages_[page].aux * aux_words());
    std::copy_n(from, aux_words(), aux_host_.begin() + static_cast<ptrdiff_t>(pages_[made].aux * aux_words()));
  }
  return made;
}

void KvPool::ref(PageId page) {
  GODWIT_CHECK(page < pages_.size() && pages_[page].references > 0);
  ++pages_[page].references;
}

void KvPool::unref(PageId page) {
  GODWIT_CHECK(page < pages_.size() && pages_[page].references > 0);
  if (--pages_[page].references > 0) return;
  free_aux(pages_[page]);
  free_pages_.push_back(page);
  --pages_in_use_;
}

int32_t KvPool::position(PageId page, uint32_t slot) const {
  const Page& info = pages_[page];
  if (info.aux == kNoAux) return info.first_position + static_cast<int32_t>(slot);
  return aux_host_[info.aux * aux_words() + slot];
}

float KvPool::bias(PageId page, uint32_t slot) const {
  const Page& info = pages_[page];
  if (info.aux == kNoAux) return 0;
  return std::bit_cast<float>(aux_host_[info.aux * aux_words() + static_cast<size_t>(format_.page_tokens) + slot]);
}

bool KvPool::make_explicit(PageId page) {
  Page& info = pages_[page];
  GODWIT_CHECK(info.references == 1);
  if (info.aux != kNoAux) return true;
  if (all_bytes_in_use() + format_.aux_bytes() > budget_bytes_ || !ensure_aux_slab()) return false;
  info.aux = take_aux();
  int32_t* words = &aux_host_[info.aux * aux_words()];
  for (int32_t slot = 0; slot < format_.page_tokens; ++slot) {
    words[slot] = info.first_position + slot;
    words[format_.page_tokens + slot] = std::bit_cast<int32_t>(0.0f);
  }
  return true;
}

void KvPool::make_implicit(PageId page, int32_t first_position) {
  Page& info = pages_[page];
  GODWIT_CHECK(info.references == 1);
  free_aux(info);
  info.first_position = first_position;
}

void KvPool::set_slot(PageId page, uint32_t slot, int32_t position, float bias) {
  const Page& info = pages_[page];
  GODWIT_CHECK(info.references == 1 && info.aux != kNoAux && slot < static_cast<uint32_t>(format_.page_tokens));
  int32_t& position_word = aux_host_[info.aux * aux_words() + slot];
  int32_t& bias_word = aux_host_[info.aux * aux_words() + static_cast<size_t>(format_.page_tokens) + slot];
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
    backend_.upload(aux_slab_.data() + first * format_.aux_bytes(), std::as_bytes(words));
  }
  aux_changed_.clear();
}

bool KvPool::ensure_aux_slab() {
  if (aux_slab_.data() != nullptr) return true;
  auto slab = backend_.allocate(capacity_aux_ * format_.aux_bytes());
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
  KvPool& pool = sealed_ != nullptr ? *sealed_ : *this;
  pool.peak_bytes_ = std::max(pool.peak_bytes_, pool.bytes_in_use());
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
  if (open_) GODWIT_TRY(open_->check_integrity());
  if (bytes_in_use() > budget_bytes_ || peak_bytes_ > budget_bytes_)
    return errorf(kBroken, "KV pool: {} bytes in use, {} at the peak, {} allowed", bytes_in_use(), peak_bytes_,
                  budget_bytes_);

  std::vector<uint32_t> expected(pages_.size());
  for (const PageHolder* holder : holders_) holder->count_references(expected);
  std::vector<bool> aux_seen(aux_host_.size() / aux_words());
  size_t used = 0, used_aux = 0;
  for (PageId page = 0; page < pages_.size(); ++page) {
    const Page& info = pages_[page];
    if (info.references != expected[page])
      return errorf(kBroken, "KV page {} counts {} references, its holders {}", page, info.references, expected[page]);
    used += info.references > 0 ? 1 : 0;
    if (info.aux == kNoAux) continue;
    if (info.references == 0 || info.aux >= aux_seen.size() || aux_seen[info.aux])
      return errorf(kBroken, "KV page {} has aux entry {}, which is not its own", page, info.aux);
    aux_seen[info.aux] = true;
    ++used_aux;
  }
  if (used != pages_in_use_ || used_aux != aux_in_use_)
    return errorf(kBroken, "KV pool counts {} pages and {} aux entries in use; there are {} and {}", pages_in_use_,
                  aux_in_use_, used, used_aux);

  std::vector<bool> page_free(pages_.size());
  for (PageId page : free_pages_) {
    if (page >= pages_.size() || pages_[page].references > 0 || page_free[page])
      return errorf(kBroken, "KV page {} is in the free list wrongly", page);
    page_free[page] = true;
  }
  for (uint32_t entry : free_aux_) {
    if (entry >= aux_seen.size() || aux_seen[entry])
      return errorf(kBroken, "aux entry {} is in the free list wrongly", entry);
    aux_seen[entry] = true;
  }
  if (free_pages_.size() + used != pages_.size() || free_aux_.size() + used_aux != aux_seen.size())
    return errorf(kBroken, "KV pool lost {} pages and {} aux entries", pages_.size() - used - free_pages_.size(),
                  aux_seen.size() - used_aux - free_aux_.size());
  return {};
}

}  // namespace godwit
