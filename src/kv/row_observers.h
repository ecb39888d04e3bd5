// Observers of single sequences in a step that computes several at once: each sees the attention of its own rows as if
// they were all there is.
#pragma once

#include <vector>

#include "kv/attention_observer.h"

namespace godwit {

class RowObservers final : public AttentionObserver {
 public:
  // `observer` lives as long as this. Rows of different observers are disjoint, and a tile belongs to one of them.
  void add(int32_t row_begin, int32_t row_end, AttentionObserver& observer) {
    list_.push_back({row_begin, row_end, &observer});
  }
  bool empty() const { return list_.empty(); }

  void attended(int layer, const AttentionArgs& args) override;

 private:
  struct Entry {
    int32_t row_begin, row_end;
    AttentionObserver* observer;
  };
  std::vector<Entry> list_;
};

}  // namespace godwit
