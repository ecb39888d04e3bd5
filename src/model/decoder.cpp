#include "model/decoder.h"

#include <cmath>

#include "attn/shared_pages.h"

namespace godwit {

// One forward pass: the arguments of the step and where its activations are.
class Step {
 public:
  Step(const Model& model, Workspace& workspace, const StepInput& input)
      : model_(model),
        c_(model.config_),
        be_(model.backend_),
        ws_(workspace),
        in_(input),
        rows_(static_cast<int64_t>(input.tokens.size())) {
    GODWIT_CHECK((rows_ > 0 || in_.attention != nullptr) && rows_ <= ws_.max_rows());
  }

  void run() {
    ws_.phase_ = in_.phase;
    upload_rows();
    if (rows_ == 0) return help_others();
    be_.embed(tokens_, model_.weights_.embedding, c_.embedding_scale, hidden_);
    for (size_t layer = 0; layer < c_.layers.size(); ++layer) {
      attention_block(layer);
      feed_forward_block(layer);
    }
  }

 private:
  KvPool& pool() const {
    GODWIT_CHECK(!in_.groups.empty() && !in_.groups[0].segments.empty());
    return in_.groups[0].segments[0].sequence->pool();
  }

  void help_others() {
    const Tensor no_q = ws_.q_.slice(0, 0), no_kv = ws_.k_.slice(0, 0);
    for (size_t layer = 0; layer < c_.layers.size(); ++layer)
      ask(layer, no_q.reshape({0, c_.heads, c_.head_dim}), no_kv.reshape({0, c_.kv_heads, c_.head_dim}),
          no_kv.reshape({0, c_.kv_heads, c_.head_dim}));
  }

  void ask(size_t layer, const Tensor& q, const Tensor& k, const Tensor& v) {
    in_.attention->attend(
        {.layer = static_cast<int>(layer),
         .q = q,
         .k = k,
         .v = v,
         .positions = positions_,
         .scale = c_.attention_scale,
         .softcap = c_.attention_softcap,
         .window = c_.layers[layer].window,
         .partial = {ws_.attended_.slice(0, rows_).reshape({rows_, c_.heads, c_.head_dim}), ws_.lse_.slice(0, rows_)}});
  }

  void upload_rows() {
    std::vector<int32_t> positions(static_cast<size_t>(rows_), -1);
    for (const PlannedSegments& group : in_.groups)
      for (const AttentionSegment& segment : group.segments)
        for (int32_t row = segment.row_begin; row < segment.row_end; ++row)
          positions[static_cast<size_t>(row)] = segment.first_position + row - segment.row_begin;
    for (int32_t position : positions) GODWIT_CHECK(position >= 0, "a row belongs to no segment");
    tokens_ = vector_of(ws_.tokens_, rows_);
    positions_ = vector_of(ws_.positions_, rows_);
    be_.upload(tokens_.data, std::as_bytes(in_.tokens));
    be_.upload(positions_.data, std::as_bytes(std::span<const int32_t>(positions)));
    hidden_ = ws_.hidden_.slice(0, rows_);
    normed_ = ws_.normed_.slice(0, rows_);
    projected_ = ws_.projected_.slice(0, rows_);
  }

  static Tensor vector_of(const Tensor& column, int64_t n) { return column.slice(0, n).reshape({n}); }

  MatmulArgs product(const Tensor& x, const Linear& w, const Tensor& y, bool accumulate = false) const {
    return {.x = x, .w = w.weight, .bias = w.bias, .y = y, .accumulate = accumulate, .phase = in_.phase};
  }

  // The block's last projection: into the residual, by way of its own norm where the family has one.
  void to_residual(const Tensor& x, const Linear& w, const Tensor& post_norm) {
    if (!post_norm) {
      be_.matmul(product(x, w, hidden_, true));
    } else {
      be_.matmul(product(x, w, projected_));
      add_normed(post_norm);
    }
  }
  void add_normed(const Tensor& post_norm) {
    be_.rms_norm(projected_, post_norm, c_.norm_eps, projected_);
    be_.add(hidden_, projected_);
  }

  void attention_block(size_t layer) {
    const LayerWeights& w = model_.weights_.layers[layer];
    Tensor q = ws_.q_.slice(0, rows_), k = ws_.k_.slice(0, rows_), v = ws_.v_.slice(0, rows_);
    be_.rms_norm(hidden_, w.attn_norm, c_.norm_eps, normed_);
    const MatmulArgs products[] = {product(normed_, w.q, q), product(normed_, w.k, k), product(normed_, w.v, v)};
    be_.matmul_all(products);
    q = q.reshape({rows_, c_.heads, c_.head_dim});
    k = k.reshape({rows_, c_.kv_heads, c_.head_dim});
    v = v.reshape({rows_, c_.kv_heads, c_.head_dim});
    if (c_.qk_norm) {
      normalize_heads(q, w.q_norm);
      normalize_heads(k, w.k_norm);
    }
    rotate(q, layer);
    rotate(k, layer);
    if (in_.attention != nullptr) {
      ask(layer, q, k, v);
    } else {
      write_kv(layer, k, v);
      attend(layer, q);
    }
    to_residual(ws_.attended_.slice(0, rows_), w.o, w.post_attn_norm);
  }

  void normalize_heads(const Tensor& x, const Tensor& weight) {
    Tensor heads = x.reshape({x.shape[0] * x.shape[1], x.shape[2]});
    be_.rms_norm(heads, weight, c_.norm_eps, heads);
  }

  void rotate(const Tensor& x, size_t layer) {
    const Model::Rope& rope = model_.ropes_[static_cast<size_t>(c_.layers[layer].rope)];
    be_.rope({.x = x,
              .positions = positions_,
              .inv_freq = rope.inv_freq,
              .magnitude = rope.magnitude,
              .style = c_.rope_style});
  }

  void write_kv(size_t layer, const Tensor& k, const Tensor& v) {
    slots_.resize(static_cast<size_t>(rows_ * c_.kv_heads));
    for (const PlannedSegments& group : in_.groups) {
      for (const AttentionSegment& segment : group.segments) {
        segment_slots_.clear();
        segment.sequence->tail_slots(static_cast<int>(layer), segment.row_end - segment.row_begin, segment_slots_);
        std::copy(segment_slots_.begin(), segment_slots_.end(),
                  slots_.begin() + static_cast<ptrdiff_t>(segment.row_begin) * c_.kv_heads);
      }
    }
    const int number = static_cast<int>(layer);
    be_.kv_write({.format = pool().format(number),
                  .slab = pool().slab(number),
                  .slots = slots_,
                  .k = k,
                  .v = v,
                  .open_slab = pool().open_slab()});
    seals_.clear();
    for (const PlannedSegments& group : in_.groups)
      for (const AttentionSegment& segment : group.segments) segment.sequence->list_seals(number, seals_);
    if (!seals_.empty())
      be_.kv_seal({.format = pool().format(number),
                   .open_slab = pool().open_slab(),
                   .slab = pool().slab(number),
                   .pages = seals_,
                   .aux = pool().aux_slab()});
  }

  void attend(size_t layer, const Tensor& q) {
    const LayerConfig& settings = c_.layers[layer];
    plan_.tiles.clear();
    plan_.pages.clear();
    for (const PlannedSegments& group : in_.groups)
      group.planner->add(
          {.layer = static_cast<int>(layer), .window = settings.window, .segments = group.segments, .q = q}, plan_);
    AttentionArgs args;
    args.format = pool().format(static_cast<int>(layer));
    args.slab = pool().slab(static_cast<int>(layer));
    args.open_slab = pool().open_slab();
    args.aux = pool().aux_slab();
    args.plan = &plan_;
    args.q = q;
    args.positions = positions_;
    args.kv_heads = c_.kv_heads;
    args.scale = c_.attention_scale;
    args.softcap = c_.attention_softcap;
    args.window = settings.window;
    args.partial = {ws_.attended_.slice(0, rows_).reshape({rows_, c_.heads, c_.head_dim}), ws_.lse_.slice(0, rows_)};
    attend_sharing(be_, args,
                   ws_.attention_state_.slice(0, rows_).reshape({rows_, c_.heads, attention_state_width(c_.head_dim)}));
    if (in_.observer != nullptr) in_.observer->attended(static_cast<int>(layer), args);
  }

  void feed_forward_block(size_t layer) {
    const LayerWeights& w = model_.weights_.layers[layer];
    be_.rms_norm(hidden_, w.ffn_norm, c_.norm_eps, normed_);
    if (c_.layers[layer].experts) {
      experts(w);
      return;
    }
    Tensor gate = Workspace::rows_apart(ws_.gate_.data, rows_, c_.ffn_dim),
           up = Workspace::rows_apart(ws_.up_.data, rows_, c_.ffn_dim);
    be_.gated_matmul({.x = normed_,
                      .gate_w = w.gate.weight,
                      .gate_bias = w.gate.bias,
                      .up_w = w.up.weight,
                      .up_bias = w.up.bias,
                      .activation = c_.activation,
                      .y = gate,
                      .spare = up,
                      .phase = in_.phase});
    to_residual(gate, w.down, w.post_ffn_norm);
  }

  void experts(const LayerWeights& w) {
    const int64_t per_token = c_.experts_per_token, expert_rows = rows_ * per_token;
    Tensor router = ws_.router_.slice(0, rows_), weights = ws_.expert_weights_.slice(0, rows_);
    Tensor ids = ws_.expert_ids_.slice(0, rows_), out = ws_.expert_out_.slice(0, expert_rows);
    Tensor gate = Workspace::rows_apart(ws_.gate_.data, expert_rows, c_.expert_ffn_dim);
    Tensor up = Workspace::rows_apart(ws_.up_.data, expert_rows, c_.expert_ffn_dim);
    be_.matmul({.x = normed_, .w = w.router, .bias = {}, .y = router, .phase = in_.phase});
    be_.route({.logits = router, .ids = ids, .weights = weights, .normalize = c_.normalize_experts});
    be_.expert_matmul({.x = normed_, .w = w.gate_exps, .ids = ids, .y = gate, .phase = in_.phase});
    be_.expert_matmul({.x = normed_, .w = w.up_exps, .ids = ids, .y = up, .phase = in_.phase});
    be_.gated(c_.activation, gate, up, gate);
    be_.expert_matmul({.x = gate, .w = w.down_exps, .ids = ids, .y = out, .phase = in_.phase});
    be_.combine_experts(out, weights, projected_);
    if (w.post_ffn_norm) be_.rms_norm(projected_, w.post_ffn_norm, c_.norm_eps, projected_);
    be_.add(hidden_, projected_);
  }

  const Model& model_;
  const ModelConfig& c_;
  Backend& be_;
  Workspace& ws_;
  const StepInput& in_;
  const int64_t rows_;
  Tensor tokens_, positions_, hidden_, normed_, projected_;
  AttentionPlan plan_;
  std::vector<KvSlot> slots_, segment_slots_;
  std::vector<KvSeal> seals_;
};

Result<std::unique_ptr<Model>> Model::load(Backend& backend, const ModelSource& source, int64_t context_tokens,
                                           const LoadOptions& options) {
  std::unique_ptr<Model> model(new Model(backend, source.config()));
  ModelConfig& c = model->config_;
  if (c.attention_scale == 0) c.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
  GODWIT_ASSIGN(model->weights_, load_weights(backend, source, options));
  for (const RopeConfig& rope : c.ropes) {
    const RopeTable table = make_rope_table(rope, c, context_tokens);
    GODWIT_ASSIGN(Buffer buffer, backend.allocate(table.inv_freq.size() * sizeof(float)));
    backend.upload(buffer.data(), std::as_bytes(std::span(table.inv_freq)));
    model->ropes_.push_back(
        {Tensor(buffer.data(), DType::kF32, {static_cast<int64_t>(table.inv_freq.size())}), table.magnitude});
    model->weights_.buffers.push_back(buffer);
  }
  return model;
}

void Model::forward(Workspace& workspace, const StepInput& input) const {
  Step(*this, workspace, input).run();
}

Tensor Model::hidden(Workspace& ws, std::span<const int32_t> rows) const {
  const auto n = static_cast<int64_t>(rows.size());
  GODWIT_CHECK(n > 0 && n <= ws.max_logit_rows());
  Tensor picked = ws.logit_rows_.slice(0, n).reshape({n}), x = ws.logit_hidden_.slice(0, n);
  backend_.upload(picked.data, std::as_bytes(rows));
  backend_.gather_rows(ws.hidden_, picked, x);
  backend_.rms_norm(x, weights_.output_norm, config_.norm_eps, x);
  return x;
}

Tensor Model::logits(Workspace& ws, std::span<const int32_t> rows) const {
  const Tensor x = hidden(ws, rows);
  Tensor out = ws.logits_.slice(0, static_cast<int64_t>(rows.size()));
  backend_.matmul({.x = x, .w = weights_.output, .bias = {}, .y = out, .phase = ws.phase_});
  if (config_.logit_softcap > 0) backend_.softcap(out, config_.logit_softcap);
  return out;
}

}  // namespace godwit
