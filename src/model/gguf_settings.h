// Writes a ModelConfig as GGUF metadata: the inverse of what ConfigReader reads from a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "io/gguf_metadata.h"
#include "io/gguf_writer.h"
#include "model/family.h"

namespace godwit {

// Small tensors that belong to the settings (factors of RoPE scalings).
struct SettingsTensor {
  std::string name;
  std::vector<float> values;
};

Result<std::vector<SettingsTensor>> write_settings(const ModelConfig& config, const ModelFamily& family,
                                                   GgufMetadata& metadata);
// The tensors must outlive what the writer writes.
Status add_settings_tensors(const std::vector<SettingsTensor>& tensors, GgufWriter& writer);

}  // namespace godwit
