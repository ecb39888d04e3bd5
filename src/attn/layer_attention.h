// Attention of one layer as the decoder asks for it, where the keys and values are not all in this process.
#pragma once

#include "backend/attention.h"

namespace godwit {

struct LayerCall {
  int layer = 0;
  Tensor q;          // [rows, heads, head_dim] f32, rotated
  Tensor k, v;       // [rows, kv_heads, head_dim] f32: of the same rows, to be kept
  Tensor positions;  // [rows] i32
  float scale = 1;
  float softcap = 0;
  int32_t window = 0;   // 0 = none
  AttnPartial partial;  // written
};

class LayerAttention {
 public:
  // Keeps k and v and attends. Called for every layer in order, also by a process without rows, whose part it is to
  // help others with theirs.
  virtual void attend(const LayerCall& call) = 0;

 protected:
  ~LayerAttention() = default;
};

}  // namespace godwit
