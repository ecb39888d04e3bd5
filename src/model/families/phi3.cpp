// Phi 3, 3.5 and 4: Llama with Q, K and V in one matrix and gate and up in another; longrope beyond 4K.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Phi3ForCausalLM"};

constexpr TensorNames kNames[] = {
    {"blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight"},
    {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight"},
};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  return configure_windows(reader, config, [](int) { return true; });
}

}  // namespace

extern const ModelFamily model_family_phi3;
const ModelFamily model_family_phi3 = {"phi3", "Phi 3, 3.5 and 4", kArchitectures, "phi3", true, configure, kNames};

}  // namespace godwit
