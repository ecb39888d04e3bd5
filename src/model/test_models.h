// For tests: the tiny golden models, copies of them with other settings, and ModelConfigs as comparable text.
#pragma once

#include <fmt/ranges.h>

#include "io/test_files.h"
#include "model/source.h"

namespace godwit::model_test {

inline std::filesystem::path model_path(std::string_view name) {
  return std::filesystem::path(GODWIT_TEST_DATA) / "models" / name;
}

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// A tiny model's folder in which single files can be replaced.
class ModelCopy {
 public:
  explicit ModelCopy(std::string_view name) : original_(model_path(name)) {
    for (const auto& entry : std::filesystem::directory_iterator(original_))
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), path() / entry.path().filename());
  }
  const std::filesystem::path& path() const { return folder_.path(); }

  void write(std::string_view file, std::string_view text) {
    remove(file);
    io_test::write_file(path() / file, text);
  }
  void remove(std::string_view file) { std::filesystem::remove(path() / file); }
  // The file as it was, changed by an RFC 7396 merge patch.
  void patch(std::string_view file, std::string_view merge_patch) {
    auto json = nlohmann::json::parse(io_test::read_file(original_ / file));
    json.merge_patch(nlohmann::json::parse(merge_patch));
    write(file, json.dump());
  }

 private:
  std::filesystem::path original_;
  io_test::TempFolder folder_;
};

inline std::string text_of(const RopeConfig& r) {
  return fmt::format(
      "theta {} scaling {} factor {} from {} attention {} betas {} {} mscales {} {} truncate {} freq {} {} "
      "long {} short {} divisors {}",
      r.theta, static_cast<int>(r.scaling), r.factor, r.original_context, r.attention_factor, r.beta_fast, r.beta_slow,
      r.mscale, r.mscale_all_dim, r.truncate, r.low_freq_factor, r.high_freq_factor, r.long_factors, r.short_factors,
      r.divisors);
}

inline std::string text_of(const LayerConfig& layer) {
  return fmt::format("window {} rope {}{}", layer.window, layer.rope, layer.experts ? " experts" : "");
}

// Every field, one to a line: two configs are equal when their texts are.
inline std::string text_of(const ModelConfig& c) {
  std::string text = fmt::format(
      "vocab {}\ndim {}\nffn {}\nexpert_ffn {}\nheads {}\nkv_heads {}\nhead_dim {}\nrotary_dim {}\ncontext {}\neps {}\n"
      "experts {}\nper_token {}\nnormalize {}\nactivation {}\nembedding_scale {}\nattention_scale "
      "{}\nattention_softcap {}\n"
      "logit_softcap {}\nqk_norm {}\npost_norms {}\nnorm_plus_one {}\nrope_style {}\n",
      c.vocab_size, c.dim, c.ffn_dim, c.expert_ffn_dim, c.heads, c.kv_heads, c.head_dim, c.rotary_dim, c.context_length,
      c.norm_eps, c.experts, c.experts_per_token, c.normalize_experts, static_cast<int>(c.activation),
      c.embedding_scale, c.attention_scale, c.attention_softcap, c.logit_softcap, c.qk_norm, c.post_norms,
      c.norm_plus_one, static_cast<int>(c.rope_style));
  for (const RopeConfig& rope : c.ropes) text += "rope " + text_of(rope) + "\n";
  for (const LayerConfig& layer : c.layers) text += "layer " + text_of(layer) + "\n";
  return text;
}

}  // namespace godwit::model_test
