// Tensor names in GGUF's spelling and in Hugging Face's. Llama's are the rule; a family lists its exceptions.
#include <charconv>

#include "model/source.h"

namespace godwit {
namespace {

constexpr TensorNames kCommon[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    {"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {"blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
    {"blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
    {"blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
    {"blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
};

std::string replace_first(std::string_view text, std::string_view what, std::string_view with) {
  size_t at = text.find(what);
  if (at == std::string_view::npos) return std::string(text);
  return std::string(text.substr(0, at)) + std::string(with) + std::string(text.substr(at + what.size()));
}

}  // namespace

std::string hf_tensor_name(const ModelFamily& family, std::string_view gguf_name) {
  std::string_view layer;
  std::string pattern(gguf_name);
  if (gguf_name.substr(0, 4) == "blk.") {
    size_t end = gguf_name.find('.', 4);
    if (end == std::string_view::npos) return {};
    layer = gguf_name.substr(4, end - 4);
    pattern = "blk.{}" + std::string(gguf_name.substr(end));
  }
  for (const TensorNames& names : family.names)
    if (names.gguf == pattern) return replace_first(names.hf, "{}", layer);
  for (const TensorNames& names : kCommon)
    if (names.gguf == pattern) return replace_first(names.hf, "{}", layer);
  return {};
}

}  // namespace godwit
