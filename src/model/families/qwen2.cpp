// Qwen 2 and 2.5: biases on Q, K and V; the upper layers may slide.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen2ForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  return configure_qwen_windows(reader, config, QwenWindows::kUpperLayers);
}

}  // namespace

extern const ModelFamily model_family_qwen2;
const ModelFamily model_family_qwen2 = {"qwen2", "Qwen 2 and 2.5", kArchitectures, "qwen2", true, configure, {}};

}  // namespace godwit
