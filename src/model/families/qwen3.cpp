// Qwen 3: each query and key head is normalised before RoPE.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen3ForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.head_dim = 128;  // the family's size where the file gives none
  GODWIT_TRY(configure_decoder(reader, config));
  config.qk_norm = true;
  return configure_qwen_windows(reader, config, QwenWindows::kUpperLayers);
}

}  // namespace

extern const ModelFamily model_family_qwen3;
const ModelFamily model_family_qwen3 = {"qwen3", "Qwen 3", kArchitectures, "qwen3", true, configure, {}};

}  // namespace godwit
