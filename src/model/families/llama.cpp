// Llama 2, 3, 3.1, 3.2, 3.3 and the many models of the same shape (SmolLM, TinyLlama, Yi, DeepSeek distillations, …).
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"LlamaForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  // GGUF files of this architecture hold Q and K with rows permuted for pairwise rotation, and Mixtral and Mistral
  // go by the same name there.
  if (reader.is_gguf()) {
    config.rope_style = RopeStyle::kPairs;
    GODWIT_TRY(configure_experts(reader, config));
    GODWIT_TRY(configure_windows(reader, config, [](int) { return true; }));
  }
  return {};
}

}  // namespace

extern const ModelFamily model_family_llama;
const ModelFamily model_family_llama = {"llama", "Llama 2, 3 and 3.x", kArchitectures, "llama", true, configure, {}};

}  // namespace godwit
