// The decoder-only transformer that every family of ours is: embedding, then per layer attention and feed-forward, each
// with its norms and residual, then logits. What differs between families is data (ModelConfig) and not code.
//
// A Model is immutable and holds no state between steps: tokens, KV sequences and activations all come in from outside.
// It never follows a tensor's pointer; the back-end does.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attn/layer_attention.h"
#include "attn/plan.h"
#include "backend/backend.h"
#include "kv/attention_observer.h"
#include "model/weights.h"

namespace godwit {

// Segments of a step that one planner decides about.
struct PlannedSegments {
  AttentionPlanner* planner = nullptr;
  std::span<const AttentionSegment> segments;
};

struct StepInput {
  std::span<const int32_t> tokens;          // [rows], valid ids
  std::span<const PlannedSegments> groups;  // together they cover every row once; sequences have the rows appended
  Phase phase = Phase::kPrefill;
  AttentionObserver* observer = nullptr;  // may be null
  // Where K and V are not all in this process: asked instead of planners, sequences and observer. There may be no rows.
  LayerAttention* attention = nullptr;
};

// Activations of steps of up to `max_rows` rows and `max_logit_rows` rows of logits. One step at a time.
class Workspace {
 public:
  static Result<Workspace> create(Backend& backend, const ModelConfig& config, int max_rows, int max_logit_rows);
  static size_t bytes(const ModelConfig& config, int max_rows, int max_logit_rows);

  // Rows of activations begin in different sets of a cache: powers of two would put those of a tile into the same,
  // where they push each other out.
  static Tensor rows_apart(std::byte* at, int64_t rows, int64_t columns);

  int max_rows() const { return max_rows_; }
  int max_logit_rows() const { return max_logit_rows_; }

 private:
  friend class Model;
  friend class Step;
  // Lays the tensors out from `base` on (null: only counts) and returns the bytes they take.
  size_t carve(std::byte* base, const ModelConfig& config, int rows, int logit_rows);

  Buffer memory_;
  int max_rows_ = 0, max_logit_rows_ = 0;
  Phase phase_ = Phase::kPrefill;  // of the step whose activations these are
  // [max_rows, …] fp32 unless said otherwise
  Tensor tokens_, positions_;           // i32
  Tensor hidden_, normed_, projected_;  // [dim]
  Tensor q_, attended_;                 // [heads * head_dim]
  Tensor k_, v_;                        // [kv_heads * head_dim]
  Tensor lse_;                          // [heads]
  Tensor attention_state_;              // [heads * attention_state_width]
  Tensor gate_, up_;                    // [1, numbers]: laid out as the layer's feed-forward needs
  Tensor router_, expert_weights_, expert_out_;
  Tensor expert_ids_;                          // i32
  Tensor logit_rows_, logit_hidden_, logits_;  // [max_logit_rows, …]
};

class Model {
 public:
  // `context_tokens` fixes the RoPE scalings that depend on length (see make_rope_table).
  static Result<std::unique_ptr<Model>> load(Backend& backend, const ModelSource& source, int64_t context_tokens,
                                             const LoadOptions& options = {});

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  // What RoPE turns a layer's queries and keys by, [rotary_dim / 2] f32 on the back-end.
  const Tensor& inv_freq(size_t layer) const {
    return ropes_[static_cast<size_t>(config_.layers[layer].rope)].inv_freq;
  }
  KvShape kv_shape() const { return {static_cast<int>(config_.layers.size()), config_.kv_heads}; }

  // Runs the rows through the model and writes their K and V.
  void forward(Workspace& workspace, const StepInput& input) const;
  // What the last layer made of some rows of the last forward(), normed: [rows.size(), dim] in the workspace's memory,
  // until the next call. At most max_logit_rows() at once.
  Tensor hidden(Workspace& workspace, std::span<const int32_t> rows) const;
  // Next-token logits of some rows of the last forward(): [rows.size(), vocab] in the workspace's memory, until the
  // next call. At most max_logit_rows() at once.
  Tensor logits(Workspace& workspace, std::span<const int32_t> rows) const;

 private:
  friend class Step;
  struct Rope {
    Tensor inv_freq;
    float magnitude;
  };
  Model(Backend& backend, ModelConfig config) : backend_(backend), config_(std::move(config)) {}

  Backend& backend_;
  ModelConfig config_;
  ModelWeights weights_;
  std::vector<Rope> ropes_;
};

}  // namespace godwit
