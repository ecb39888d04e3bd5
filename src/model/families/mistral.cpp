// Mistral 7B and its kin: Llama with a sliding attention window in every layer where the file gives one.
#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"MistralForCausalLM"};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  GODWIT_TRY(configure_decoder(reader, config));
  return configure_windows(reader, config, [](int) { return true; });
}

}  // namespace

extern const ModelFamily model_family_mistral;
const ModelFamily model_family_mistral = {"mistral", "Mistral", kArchitectures, "llama", false, configure, {}};

}  // namespace godwit
