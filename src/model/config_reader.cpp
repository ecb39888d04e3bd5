#include "model/config_reader.h"

#include <cstring>

namespace godwit {
namespace {

using Scaling = RopeConfig::Scaling;

Result<Scaling> scaling_from_name(const std::string& name, const std::string& label) {
  if (name.empty() || name == "default" || name == "none") return Scaling::kNone;
  if (name == "linear") return Scaling::kLinear;
  if (name == "dynamic") return Scaling::kDynamic;
  if (name == "yarn") return Scaling::kYarn;
  if (name == "llama3") return Scaling::kLlama3;
  if (name == "longrope" || name == "su") return Scaling::kLongRope;
  return errorf(ErrorCode::kUnsupported,
                "{}: RoPE scaling '{}' is not supported; linear, dynamic, yarn, llama3 and longrope are", label, name);
}

Status set(const JsonObject& object, std::string_view key, double& field) {
  GODWIT_ASSIGN(auto value, object.find<double>(key));
  if (value) field = *value;
  return {};
}

Result<std::vector<float>> floats(const JsonObject& object, std::string_view key) {
  GODWIT_ASSIGN(auto values, object.find<std::vector<double>>(key));
  std::vector<float> result;
  for (double value : values.value_or(std::vector<double>{})) {
    if (!(std::abs(value) <= std::numeric_limits<float>::max()))
      return errorf(ErrorCode::kBadData, "{}: '{}' holds {}, which makes no sense", object.label(), key, value);
    result.push_back(static_cast<float>(value));
  }
  return result;
}

// Everything of a rope_scaling or rope_parameters object except where theta may stand elsewhere.
Status read_scaling(const JsonObject& object, const std::string& label, RopeConfig& rope) {
  GODWIT_ASSIGN(auto type, object.find<std::string>("rope_type"));
  if (!type) {
    GODWIT_ASSIGN(type, object.find<std::string>("type"));
  }
  GODWIT_ASSIGN(rope.scaling, scaling_from_name(type.value_or(""), label));
  GODWIT_TRY(set(object, "rope_theta", rope.theta));
  GODWIT_TRY(set(object, "factor", rope.factor));
  GODWIT_TRY(set(object, "attention_factor", rope.attention_factor));
  GODWIT_TRY(set(object, "beta_fast", rope.beta_fast));
  GODWIT_TRY(set(object, "beta_slow", rope.beta_slow));
  GODWIT_TRY(set(object, "mscale", rope.mscale));
  GODWIT_TRY(set(object, "mscale_all_dim", rope.mscale_all_dim));
  GODWIT_TRY(set(object, "low_freq_factor", rope.low_freq_factor));
  GODWIT_TRY(set(object, "high_freq_factor", rope.high_freq_factor));
  GODWIT_ASSIGN(rope.truncate, object.get_or<bool>("truncate", true));
  GODWIT_ASSIGN(rope.original_context, object.get_or<int64_t>("original_max_position_embeddings", 0));
  GODWIT_ASSIGN(rope.long_factors, floats(object, "long_factor"));
  GODWIT_ASSIGN(rope.short_factors, floats(object, "short_factor"));
  return {};
}

}  // namespace

Result<ConfigReader> ConfigReader::from_hf(const JsonObject& top) {
  ConfigReader reader;
  reader.label_ = top.label();
  GODWIT_ASSIGN(auto architectures, top.get<std::vector<std::string>>("architectures"));
  if (architectures.empty()) return errorf(ErrorCode::kBadData, "{}: 'architectures' is empty", top.label());
  reader.architecture_ = architectures[0];
  GODWIT_ASSIGN(auto text, top.find_object("text_config"));  // multimodal models keep the decoder's settings apart
  reader.hf_ = text ? *text : top;
  return reader;
}

Result<ConfigReader> ConfigReader::from_gguf(const Gguf& gguf, std::string label) {
  ConfigReader reader;
  reader.label_ = std::move(label);
  reader.gguf_ = &gguf;
  GODWIT_ASSIGN(reader.architecture_, gguf.metadata().get<std::string>("general.architecture"));
  return reader;
}

tl::unexpected<Error> ConfigReader::missing(std::string_view hf, std::string_view gguf) const {
  return errorf(ErrorCode::kBadData, "{}: the setting '{}' is missing", label_,
                is_gguf() ? key(gguf) : std::string(hf));
}

tl::unexpected<Error> ConfigReader::senseless(std::string_view hf, std::string_view gguf, double value) const {
  return errorf(ErrorCode::kBadData, "{}: the setting '{}' is {}, which makes no sense", label_,
                is_gguf() ? key(gguf) : std::string(hf), value);
}

Result<std::optional<double>> ConfigReader::number(std::string_view hf, std::string_view gguf) const {
  if ((is_gguf() ? gguf : hf).empty()) return std::nullopt;
  return is_gguf() ? gguf_->metadata().find<double>(key(gguf)) : hf_->find<double>(hf);
}

Result<std::optional<bool>> ConfigReader::boolean(std::string_view hf, std::string_view gguf) const {
  if ((is_gguf() ? gguf : hf).empty()) return std::nullopt;
  return is_gguf() ? gguf_->metadata().find<bool>(key(gguf)) : hf_->find<bool>(hf);
}

Result<std::optional<std::string>> ConfigReader::text(std::string_view hf, std::string_view gguf) const {
  if ((is_gguf() ? gguf : hf).empty()) return std::nullopt;
  return is_gguf() ? gguf_->metadata().find<std::string>(key(gguf)) : hf_->find<std::string>(hf);
}

Result<std::vector<double>> ConfigReader::numbers(std::string_view hf, std::string_view gguf) const {
  std::vector<double> result;
  if (is_gguf()) {
    if (gguf.empty()) return result;
    GODWIT_ASSIGN(auto values, gguf_->metadata().find<std::vector<int64_t>>(key(gguf)));
    if (values) result.assign(values->begin(), values->end());
  } else if (!hf.empty()) {
    GODWIT_ASSIGN(auto values, hf_->find<std::vector<double>>(hf));
    if (values) result = std::move(*values);
  }
  return result;
}

Result<std::vector<std::string>> ConfigReader::texts(std::string_view hf) const {
  if (is_gguf()) return std::vector<std::string>{};
  GODWIT_ASSIGN(auto values, hf_->find<std::vector<std::string>>(hf));
  return values.value_or(std::vector<std::string>{});
}

Result<double> ConfigReader::rotary_share() const {
  double share = 1;
  GODWIT_TRY(read("partial_rotary_factor", "", share));
  if (!is_gguf()) {
    GODWIT_ASSIGN(auto parameters, hf_->find_object("rope_parameters"));
    if (parameters) GODWIT_TRY(set(*parameters, "partial_rotary_factor", share));
  }
  if (!(share > 0 && share <= 1))
    return errorf(ErrorCode::kBadData, "{}: partial_rotary_factor is {}, but should be above 0 and at most 1", label_,
                  share);
  return share;
}

Result<RopeConfig> ConfigReader::rope(double default_theta, std::string_view layer_type) const {
  return is_gguf() ? gguf_rope(default_theta, layer_type) : hf_rope(default_theta, layer_type);
}

Result<RopeConfig> ConfigReader::hf_rope(double default_theta, std::string_view layer_type) const {
  RopeConfig rope;
  rope.theta = default_theta;
  const bool sliding = layer_type == "sliding_attention";
  GODWIT_TRY(set(*hf_, sliding ? "rope_local_base_freq" : "rope_theta", rope.theta));
  GODWIT_ASSIGN(auto parameters, hf_->find_object("rope_parameters"));
  GODWIT_ASSIGN(auto old_scaling, hf_->find_object("rope_scaling"));
  if (parameters) {
    GODWIT_ASSIGN(auto own, parameters->find_object(layer_type.empty() ? "full_attention" : layer_type));
    GODWIT_TRY(read_scaling(own ? *own : *parameters, label_, rope));
  } else if (old_scaling && !sliding) {
    GODWIT_TRY(read_scaling(*old_scaling, label_, rope));
  }
  int64_t longest = 0, original = 0;
  GODWIT_TRY(read("max_position_embeddings", "", longest));
  GODWIT_TRY(read("original_max_position_embeddings", "", original));
  if (rope.original_context == 0) rope.original_context = original > 0 ? original : longest;
  // Dynamic NTK starts at the length the file calls the longest.
  if (rope.scaling == Scaling::kDynamic) rope.original_context = longest;
  // Phi 3 states no factor: it is the ratio of the lengths.
  if (rope.scaling == Scaling::kLongRope && original > 0 && longest > original)
    rope.factor = static_cast<double>(longest) / static_cast<double>(original);
  return rope;
}

Result<RopeConfig> ConfigReader::gguf_rope(double default_theta, std::string_view layer_type) const {
  RopeConfig rope;
  rope.theta = default_theta;
  if (layer_type == "sliding_attention") {
    GODWIT_TRY(read("", "rope.freq_base_swa", rope.theta));
    return rope;
  }
  GODWIT_TRY(read("", "rope.freq_base", rope.theta));
  GODWIT_ASSIGN(auto type, text("", "rope.scaling.type"));
  GODWIT_ASSIGN(rope.scaling, scaling_from_name(type.value_or(""), label_));
  GODWIT_TRY(read("", "rope.scaling.factor", rope.factor));
  GODWIT_TRY(read("", "rope.scaling.attn_factor", rope.attention_factor));
  GODWIT_TRY(read("", "rope.scaling.original_context_length", rope.original_context));
  // For YaRN, GGUF gives a factor on top of the method's own rule.
  if (rope.scaling == Scaling::kYarn && rope.attention_factor > 0 && rope.factor > 1)
    rope.attention_factor *= 0.1 * std::log(rope.factor) + 1.0;
  GODWIT_TRY(read("", "rope.scaling.yarn_beta_fast", rope.beta_fast));
  GODWIT_TRY(read("", "rope.scaling.yarn_beta_slow", rope.beta_slow));
  auto factors = [&](const char* name, std::vector<float>& out) -> Status {
    const TensorEntry* entry = gguf_->find(name);
    if (entry == nullptr) return {};
    if (entry->dtype != DType::kF32 || entry->shape.size() != 1)
      return errorf(ErrorCode::kBadData, "{}: tensor '{}' is not a vector of f32", label_, name);
    out.resize(static_cast<size_t>(entry->shape[0]));
    std::memcpy(out.data(), entry->bytes.data(), entry->bytes.size());
    return {};
  };
  GODWIT_TRY(factors("rope_freqs.weight", rope.divisors));
  GODWIT_TRY(factors("rope_factors_long.weight", rope.long_factors));
  GODWIT_TRY(factors("rope_factors_short.weight", rope.short_factors));
  if (!rope.long_factors.empty()) rope.scaling = Scaling::kLongRope;
  if (rope.original_context == 0) GODWIT_TRY(read("", "context_length", rope.original_context));
  return rope;
}

}  // namespace godwit
