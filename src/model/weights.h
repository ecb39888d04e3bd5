// A model's weights on a back-end. Matrices keep the type they have in the file, whether they stay where they are
// mapped or are packed; norms and biases become fp32.
#pragma once

#include <functional>
#include <vector>

#include "backend/backend.h"
#include "model/source.h"

namespace godwit {

struct Linear {
  Tensor weight;  // [out, in]
  Tensor bias;    // [out] f32 or empty
};

struct LayerWeights {
  Tensor attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;  // [dim] f32; post norms may be empty
  Linear q, k, v, o;
  Tensor q_norm, k_norm;                 // [head_dim] f32 or empty
  Linear gate, up, down;                 // dense feed-forward
  Tensor router;                         // [experts, dim]
  Tensor gate_exps, up_exps, down_exps;  // [experts, out, in]
};

struct ModelWeights {
  Tensor embedding;  // [vocab, dim]
  Tensor output;     // [vocab, dim]; the embedding again where tied
  Tensor output_norm;
  std::vector<LayerWeights> layers;
  std::vector<Buffer> buffers;  // what the tensors above point into
};

struct LoadOptions {
  bool pack = true;                      // lay matrices out anew where the back-end can, in memory of this process
  std::function<void(double)> progress;  // may be empty; called with the share that is done
};
Result<ModelWeights> load_weights(Backend& backend, const ModelSource& source, const LoadOptions& options);

}  // namespace godwit
