// Qwen 3: each query and key head is normalised before RoPE.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen3ForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.head_dim = 128;  // the family's size where the file gives none
  GODWIT_TRY(configure_decoder(reader, config));
  config.qk_norm = true;
  GODWIT_ASSIGN(auto slides, reader.boolean("use_sliding_window", ""));
  if (!reader.is_gguf() && !slides.value_or(false)) return {};
  int full_layers = 0;
  GODWIT_TRY(reader.read("max_window_layers", "", full_layers));
  return configure_windows(reader, config, [=](int layer) { return layer >= full_layers; });
}

}  // namespace

extern const ModelFamily model_family_qwen3;
const ModelFamily model_family_qwen3 = {"qwen3", "Qwen 3", kArchitectures, "qwen3", true, configure, {}};

}  // namespace godwit
