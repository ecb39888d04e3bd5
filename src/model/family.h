// Model families: one file each in families/, one row of this table each. A family says which names it answers to, how
// its settings become a ModelConfig, and where its tensors are called something else than in Llama.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "model/config_reader.h"

namespace godwit {

// One tensor in GGUF's spelling and in Hugging Face's; "{}" stands for the layer, "[]" for the expert.
struct TensorNames {
  std::string_view gguf, hf;
};

struct ModelFamily {
  std::string_view name, title;
  std::span<const std::string_view> hf_architectures;
  std::string_view gguf_architecture;  // what it is written as
  bool reads_gguf;                     // false: another family reads files of that architecture
  Status (*configure)(const ConfigReader&, ModelConfig&);
  std::span<const TensorNames> names;  // beyond or instead of the common ones (see tensor_names.h)
};

std::span<const ModelFamily* const> all_model_families();
// The family of a model file, or an error that lists what there is.
Result<const ModelFamily*> find_model_family(const ConfigReader& reader);

// Reads what all families share: sizes, heads, norm, one RoPE for all layers, no windows.
Status configure_decoder(const ConfigReader& reader, ModelConfig& config);
// Sizes and routing of a mixture of experts; marks all layers as such.
Status configure_experts(const ConfigReader& reader, ModelConfig& config);
// Per-layer windows: what the file says of each layer, or else `is_sliding(layer)` where there is a window at all.
Status configure_windows(const ConfigReader& reader, ModelConfig& config, const std::function<bool(int)>& is_sliding);
// Qwen's rule: only where use_sliding_window says so; from layer max_window_layers on, or in all layers.
enum class QwenWindows { kUpperLayers, kAllLayers };
Status configure_qwen_windows(const ConfigReader& reader, ModelConfig& config, QwenWindows where);

}  // namespace godwit
