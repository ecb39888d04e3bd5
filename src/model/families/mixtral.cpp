// Mixtral: Mistral with a mixture of experts in every layer.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"MixtralForCausalLM"};

constexpr TensorNames kNames[] = {
    {"blk.{}.ffn_gate_inp.weight", "model.layers.{}.block_sparse_moe.gate.weight"},
    {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.block_sparse_moe.experts.[].w1.weight"},
    {"blk.{}.ffn_up_exps.weight", "model.layers.{}.block_sparse_moe.experts.[].w3.weight"},
    {"blk.{}.ffn_down_exps.weight", "model.layers.{}.block_sparse_moe.experts.[].w2.weight"},
};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  GODWIT_TRY(configure_experts(reader, config));
  return configure_windows(reader, config, [](int) { return true; });
}

}  // namespace

extern const ModelFamily model_family_mixtral;
const ModelFamily model_family_mixtral = {
    "mixtral", "Mixtral (mixture of experts)", kArchitectures, "llama", false, configure, kNames};

}  // namespace godwit
