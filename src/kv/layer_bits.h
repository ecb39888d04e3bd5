// Bits of K and V for each layer of a model: what godwit tune bits writes and the codec kvtuner takes. The file is
// described in docs/formats/companions.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace godwit {

struct LayerBits {
  int k = 8, v = 8;  // 2, 4 or 8
  bool operator==(const LayerBits&) const = default;
};

// From the file, for a model of so many layers.
Result<std::vector<LayerBits>> read_layer_bits(const std::string& path, int layers);
// As text, a digit for K and one for V of each layer: 84-44-42.
Result<std::vector<LayerBits>> parse_layer_bits(std::string_view text, int layers);
std::string layer_bits_text(std::span<const LayerBits> bits);

}  // namespace godwit
