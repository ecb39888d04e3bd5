#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "io/mapped_file.h"
#include "tensor/quant.h"

namespace godwit {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

class Loader {
 public:
  Loader(Backend& backend, const ModelSource& source, ModelWeights& out)
      : backend_(backend), source_(source), out_(out) {}

  bool has(const std::string& name) const { return source_.has(name); }

  // [rows, columns] or, with experts > 0, [experts, rows, columns].
  Result<Tensor> matrix(const std::string& name, int64_t rows, int64_t columns, int64_t experts = 0) {
    GODWIT_ASSIGN(auto pieces, source_.tensor(name));
    const bool stacked = experts > 0 && pieces.size() == 1;
    for (const TensorEntry* entry : pieces) {
      std::vector<int64_t> wanted{rows, columns};
      if (stacked) wanted.insert(wanted.begin(), experts);
      GODWIT_TRY(check(*entry, wanted));
      if (entry->dtype != pieces[0]->dtype)
        return errorf(ErrorCode::kUnsupported, "{}: the experts of '{}' have different types", source_.label(), name);
    }
    const DType dtype = pieces[0]->dtype;
    if (experts == 0) {
      GODWIT_ASSIGN(std::byte * data, import(*pieces[0]));
      return Tensor(data, dtype, {rows, columns});
    }
    if (stacked) {
      GODWIT_ASSIGN(std::byte * data, import(*pieces[0]));
      return Tensor(data, dtype, {experts, rows, columns});
    }
    const size_t bytes = pieces[0]->bytes.size();
    GODWIT_ASSIGN(Buffer buffer, backend_.allocate(bytes * pieces.size()));
    for (size_t i = 0; i < pieces.size(); ++i) backend_.upload(buffer.data() + i * bytes, pieces[i]->bytes);
    out_.buffers.push_back(buffer);
    return Tensor(buffer.data(), dtype, {experts, rows, columns});
  }

  // A vector as fp32, plus `add` to every element.
  Result<Tensor> vector(const std::string& name, int64_t size, float add = 0) {
    GODWIT_ASSIGN(auto pieces, source_.tensor(name));
    GODWIT_TRY(check(*pieces[0], std::vector<int64_t>{size}));
    std::vector<float> values(static_cast<size_t>(size));
    dequantize(pieces[0]->dtype, pieces[0]->bytes.data(), values.data(), values.size());
    for (float& value : values) value += add;
    GODWIT_ASSIGN(Buffer buffer, backend_.allocate(values.size() * sizeof(float)));
    backend_.upload(buffer.data(), std::as_bytes(std::span(values)));
    out_.buffers.push_back(buffer);
    return Tensor(buffer.data(), DType::kF32, {size});
  }

  Result<Tensor> norm(const std::string& name, int64_t size) {
    return vector(name, size, source_.config().norm_plus_one ? 1.0F : 0.0F);
  }

  // `stem`.weight and, where the file has it, `stem`.bias.
  Result<Linear> linear(const std::string& stem, int64_t rows, int64_t columns) {
    Linear linear;
    GODWIT_ASSIGN(linear.weight, matrix(stem + ".weight", rows, columns));
    if (has(stem + ".bias")) {
      GODWIT_ASSIGN(linear.bias, vector(stem + ".bias", rows));
    }
    return linear;
  }

 private:
  Status check(const TensorEntry& entry, const std::vector<int64_t>& wanted) const {
    if (entry.shape != wanted)
      return errorf(ErrorCode::kBadData, "{}: tensor '{}' has the shape {}, but the model's settings ask for {}",
                    source_.label(), entry.name, shape_text(entry.shape), shape_text(wanted));
    if (!backend_.supports(entry.dtype))
      return errorf(ErrorCode::kUnsupported, "{}: tensor '{}' is {}, which the {} back-end cannot multiply",
                    source_.label(), entry.name, dtype_name(entry.dtype), backend_.name());
    return {};
  }

  Result<std::byte*> import(const TensorEntry& entry) {
    const auto address = reinterpret_cast<uintptr_t>(entry.bytes.data());
    const DTypeInfo& info = dtype_info(entry.dtype);
    const size_t alignment = info.block_elements > 1 ? 2 : static_cast<size_t>(info.block_bytes);
    Buffer buffer;
    if (address % alignment == 0) {
      GODWIT_ASSIGN(buffer, backend_.import_host(source_.owner(), entry.bytes));
    } else {
      GODWIT_ASSIGN(buffer, backend_.allocate(entry.bytes.size()));
      backend_.upload(buffer.data(), entry.bytes);
    }
    out_.buffers.push_back(buffer);
    return buffer.data();
  }

  Backend& backend_;
  const ModelSource& source_;
  ModelWeights& out_;
};

Linear rows_of(const Linear& fused, int64_t begin, int64_t end) {
  return {fused.weight.slice(begin, end), fused.bias ? fused.bias.slice(begin, end) : Tensor{}};
}

Status load_attention(Loader& load, const ModelConfig& c, const std::string& blk, LayerWeights& w) {
  if (load.has(blk + "attn_qkv.weight")) {
    GODWIT_ASSIGN(Linear fused, load.linear(blk + "attn_qkv", c.q_dim() + 2 * c.kv_dim(), c.dim));
    w.q = rows_of(fused, 0, c.q_dim());
    w.k = rows_of(fused, c.q_dim(), c.q_dim() + c.kv_dim());
    w.v = rows_of(fused, c.q_dim() + c.kv_dim(), c.q_dim() + 2 * c.kv_dim());
  } else {
    GODWIT_ASSIGN(w.q, load.linear(blk + "attn_q", c.q_dim(), c.dim));
    GODWIT_ASSIGN(w.k, load.linear(blk + "attn_k", c.kv_dim(), c.dim));
    GODWIT_ASSIGN(w.v, load.linear(blk + "attn_v", c.kv_dim(), c.dim));
  }
  GODWIT_ASSIGN(w.o, load.linear(blk + "attn_output", c.dim, c.q_dim()));
  if (c.qk_norm) {
    GODWIT_ASSIGN(w.q_norm, load.norm(blk + "attn_q_norm.weight", c.head_dim));
    GODWIT_ASSIGN(w.k_norm, load.norm(blk + "attn_k_norm.weight", c.head_dim));
  }
  return {};
}

Status load_feed_forward(Loader& load, const ModelConfig& c, const std::string& blk, bool experts, LayerWeights& w) {
  if (experts) {
    GODWIT_ASSIGN(w.router, load.matrix(blk + "ffn_gate_inp.weight", c.experts, c.dim));
    GODWIT_ASSIGN(w.gate_exps, load.matrix(blk + "ffn_gate_exps.weight", c.expert_ffn_dim, c.dim, c.experts));
    GODWIT_ASSIGN(w.up_exps, load.matrix(blk + "ffn_up_exps.weight", c.expert_ffn_dim, c.dim, c.experts));
    GODWIT_ASSIGN(w.down_exps, load.matrix(blk + "ffn_down_exps.weight", c.dim, c.expert_ffn_dim, c.experts));
    return {};
  }
  if (load.has(blk + "ffn_gate.weight")) {
    GODWIT_ASSIGN(w.gate, load.linear(blk + "ffn_gate", c.ffn_dim, c.dim));
    GODWIT_ASSIGN(w.up, load.linear(blk + "ffn_up", c.ffn_dim, c.dim));
  } else {  // both in one, gate first (Phi 3)
    GODWIT_ASSIGN(Linear fused, load.linear(blk + "ffn_up", 2 * c.ffn_dim, c.dim));
    w.gate = rows_of(fused, 0, c.ffn_dim);
    w.up = rows_of(fused, c.ffn_dim, 2 * c.ffn_dim);
  }
  GODWIT_ASSIGN(w.down, load.linear(blk + "ffn_down", c.dim, c.ffn_dim));
  return {};
}

bool lies_in_file(const ModelSource& source, std::span<const Buffer> buffers, const std::byte* data) {
  const auto owner = source.owner();
  return source.mapped() && std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& each) {
           return data >= each.data() && data < each.data() + each.bytes && !each.memory.owner_before(owner) &&
                  !owner.owner_before(each.memory);
         });
}

// Lays out anew what the back-end can, all in one block of memory, and lets go of the file's pages one matrix after the
// other, so that weights are in memory once.
Status pack_weights(Backend& backend, const ModelSource& source, const std::function<void(double)>& progress,
                    ModelWeights& weights) {
  std::vector<Tensor*> matrices{&weights.output};
  for (LayerWeights& w : weights.layers)
    for (Tensor* each : {&w.q.weight, &w.k.weight, &w.v.weight, &w.o.weight, &w.gate.weight, &w.up.weight,
                         &w.down.weight, &w.gate_exps, &w.up_exps, &w.down_exps})
      matrices.push_back(each);
  std::erase_if(matrices, [&](const Tensor* each) { return !*each || !backend.can_pack(*each); });
  size_t bytes = 0;
  for (const Tensor* each : matrices) bytes += each->bytes();
  if (bytes == 0) return {};
  GODWIT_ASSIGN(Buffer buffer, backend.allocate(bytes));
  std::byte* to = buffer.data();
  for (Tensor* each : matrices) {
    const Tensor rows = *each;
    each->data = to;
    each->packed = true;
    if (weights.embedding.data == rows.data) weights.embedding = *each;  // tied: read as it is packed, too
    backend.pack(rows, *each);
    to += rows.bytes();
    if (lies_in_file(source, weights.buffers, rows.data)) MappedFile::let_go({rows.data, rows.bytes()});
    if (progress) progress(static_cast<double>(to - buffer.data()) / static_cast<double>(bytes));
  }
  weights.buffers.push_back(std::move(buffer));
  return {};
}

}  // namespace

Result<ModelWeights> load_weights(Backend& backend, const ModelSource& source, const LoadOptions& options) {
  const ModelConfig& c = source.config();
  ModelWeights weights;
  Loader load(backend, source, weights);
  GODWIT_ASSIGN(weights.embedding, load.matrix("token_embd.weight", c.vocab_size, c.dim));
  weights.output = weights.embedding;
  if (load.has("output.weight")) {
    GODWIT_ASSIGN(weights.output, load.matrix("output.weight", c.vocab_size, c.dim));
  }
  GODWIT_ASSIGN(weights.output_norm, load.norm("output_norm.weight", c.dim));
  weights.layers.resize(c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const std::string blk = fmt::format("blk.{}.", i);
    LayerWeights& w = weights.layers[i];
    GODWIT_ASSIGN(w.attn_norm, load.norm(blk + "attn_norm.weight", c.dim));
    GODWIT_ASSIGN(w.ffn_norm, load.norm(blk + "ffn_norm.weight", c.dim));
    if (c.post_norms) {
      GODWIT_ASSIGN(w.post_attn_norm, load.norm(blk + "post_attention_norm.weight", c.dim));
      GODWIT_ASSIGN(w.post_ffn_norm, load.norm(blk + "post_ffw_norm.weight", c.dim));
    }
    GODWIT_TRY(load_attention(load, c, blk, w));
    GODWIT_TRY(load_feed_forward(load, c, blk, c.layers[i].experts, w));
  }
  if (options.pack) GODWIT_TRY(pack_weights(backend, source, options.progress, weights));
  if (options.progress) options.progress(1);
  return weights;
}

}  // namespace godwit
