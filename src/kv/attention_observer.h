// Someone who watches attention as a step computes it, layer by layer.
#pragma once

#include "backend/attention.h"

namespace godwit {

class AttentionObserver {
 public:
  // After attention() of a layer with these arguments; partials and queries are there until the call returns.
  virtual void attended(int layer, const AttentionArgs& args) = 0;

 protected:
  ~AttentionObserver() = default;
};

}  // namespace godwit
