// Reads a model's settings from either of the two places they live: the keys of Hugging Face's config.json, or GGUF
// metadata. Every question names both keys; GGUF keys are given without the architecture prefix ("block_count").
// An empty name means: not there in that format. Values of the wrong type are errors, absent ones are std::nullopt.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "io/gguf.h"
#include "model/config.h"

namespace godwit {

class ConfigReader {
 public:
  // The referenced objects must outlive the reader.
  static Result<ConfigReader> from_hf(const JsonObject& config);
  static Result<ConfigReader> from_gguf(const Gguf& gguf, std::string label);

  bool is_gguf() const { return gguf_ != nullptr; }
  const std::string& label() const { return label_; }
  // HF: the first entry of "architectures"; GGUF: general.architecture.
  const std::string& architecture() const { return architecture_; }

  Result<std::optional<double>> number(std::string_view hf, std::string_view gguf) const;
  Result<std::optional<bool>> boolean(std::string_view hf, std::string_view gguf) const;
  Result<std::optional<std::string>> text(std::string_view hf, std::string_view gguf) const;
  Result<std::vector<double>> numbers(std::string_view hf, std::string_view gguf) const;  // absent: empty
  Result<std::vector<std::string>> texts(std::string_view hf) const;                      // absent: empty

  // Sets `field` where the value is there; `require` fails where it is not. Integers must be whole and in range, other
  // numbers finite.
  template <class T>
  Status read(std::string_view hf, std::string_view gguf, T& field) const {
    GODWIT_ASSIGN(auto value, number(hf, gguf));
    return value ? assign(*value, hf, gguf, field) : Status{};
  }
  template <class T>
  Status require(std::string_view hf, std::string_view gguf, T& field) const {
    GODWIT_ASSIGN(auto value, number(hf, gguf));
    if (!value) return missing(hf, gguf);
    return assign(*value, hf, gguf, field);
  }

  // RoPE settings of a layer type ("" or "full_attention", "sliding_attention"), in any of the forms found in the wild.
  Result<RopeConfig> rope(double default_theta, std::string_view layer_type = {}) const;
  // The share of a head that is rotated: partial_rotary_factor, wherever it stands.
  Result<double> rotary_share() const;

 private:
  template <class T>
  Status assign(double value, std::string_view hf, std::string_view gguf, T& field) const {
    if constexpr (std::is_integral_v<T>) {
      if (!(std::abs(value) <= 0x1p30) || value != std::floor(value)) return senseless(hf, gguf, value);
    } else {
      if (!(std::abs(value) <= std::numeric_limits<float>::max())) return senseless(hf, gguf, value);
    }
    field = static_cast<T>(value);
    return {};
  }
  tl::unexpected<Error> senseless(std::string_view hf, std::string_view gguf, double value) const;
  tl::unexpected<Error> missing(std::string_view hf, std::string_view gguf) const;
  std::string key(std::string_view gguf) const { return architecture_ + "." + std::string(gguf); }
  ConfigReader() = default;
  Result<RopeConfig> hf_rope(double default_theta, std::string_view layer_type) const;
  Result<RopeConfig> gguf_rope(double default_theta, std::string_view layer_type) const;

  std::optional<JsonObject> hf_;  // the text model's object
  const Gguf* gguf_ = nullptr;
  std::string label_, architecture_;
};

}  // namespace godwit
