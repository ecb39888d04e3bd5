// Qwen 2 and 2.5: biases on Q, K and V; the upper layers may slide.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen2ForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  GODWIT_ASSIGN(auto slides, reader.boolean("use_sliding_window", ""));
  if (!reader.is_gguf() && !slides.value_or(false)) return {};
  int full_layers = 0;
  GODWIT_TRY(reader.read("max_window_layers", "", full_layers));
  return configure_windows(reader, config, [=](int layer) { return layer >= full_layers; });
}

}  // namespace

extern const ModelFamily model_family_qwen2;
const ModelFamily model_family_qwen2 = {"qwen2", "Qwen 2 and 2.5", kArchitectures, "qwen2", true, configure, {}};

}  // namespace godwit
