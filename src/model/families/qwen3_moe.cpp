// Qwen 3 with a mixture of experts in some or all layers.
#include <algorithm>

#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen3MoeForCausalLM"};

constexpr TensorNames kNames[] = {
    {"blk.{}.ffn_gate_inp.weight", "model.layers.{}.mlp.gate.weight"},
    {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.[].gate_proj.weight"},
    {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.[].up_proj.weight"},
    {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.[].down_proj.weight"},
};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.head_dim = 128;
  config.normalize_experts = reader.is_gguf();  // the default where the file does not say
  GODWIT_TRY(configure_decoder(reader, config));
  GODWIT_TRY(configure_experts(reader, config));
  GODWIT_TRY(configure_qwen_windows(reader, config, QwenWindows::kAllLayers));
  config.qk_norm = true;
  if (reader.is_gguf()) return {};
  int step = 1;
  GODWIT_TRY(reader.read("decoder_sparse_step", "", step));
  if (step < 1) return errorf(ErrorCode::kBadData, "{}: decoder_sparse_step is {}", reader.label(), step);
  GODWIT_ASSIGN(auto dense, reader.numbers("mlp_only_layers", ""));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool listed = std::find(dense.begin(), dense.end(), static_cast<double>(i)) != dense.end();
    config.layers[i].experts = !listed && (i + 1) % static_cast<size_t>(step) == 0;
  }
  return {};
}

}  // namespace

extern const ModelFamily model_family_qwen3_moe;
const ModelFamily model_family_qwen3_moe = {
    "qwen3_moe", "Qwen 3 (mixture of experts)", kArchitectures, "qwen3moe", true, configure, kNames};

}  // namespace godwit
