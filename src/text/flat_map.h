// A hash map from 64-bit keys to 32-bit pairs for tables that are filled once and read often: open addressing in one
// allocation. The key ~0 is not allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace godwit {

class FlatMap {
 public:
  struct Value {
    uint32_t first = 0;
    uint32_t second = 0;
  };

  explicit FlatMap(size_t expected = 0) { resize(expected); }

  size_t size() const { return size_; }

  const Value* find(uint64_t key) const {
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].value;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }

  void set(uint64_t key, Value value) {
    if ((size_ + 1) * 2 > slots_.size()) resize(slots_.size());
    insert(key, value);
  }

  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) fn(slot.key, slot.value);
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value;
  };

  size_t slot_of(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    key ^= key >> 32;
    key *= 0xD6E8FEB86659FD93u;
    return (key ^ key >> 29) & mask_;
  }

  void insert(uint64_t key, Value value) {
    size_t slot = slot_of(key);
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
    if (slots_[slot].key == kEmpty) ++size_;
    slots_[slot] = {key, value};
  }

  void resize(size_t expected) {
    size_t capacity = 16;
    while (capacity < expected * 2) capacity *= 2;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    mask_ = capacity - 1;
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) insert(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace godwit
