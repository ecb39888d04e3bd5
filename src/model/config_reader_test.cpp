// Settings from Hugging Face's config.json in both layouts and from GGUF; settings that nobody in their right mind
// writes.
#include <gtest/gtest.h>

#include "io/gguf_writer.h"
#include "model/test_models.h"

namespace godwit {
namespace {

using io_test::expect_error;
using model_test::model_path;
using model_test::ModelCopy;
using model_test::text_of;
using model_test::value_of;

std::vector<std::string> model_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(model_path("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

ModelConfig configured(const std::filesystem::path& file) {
  const nlohmann::json json = value_of(parse_json(io_test::read_file(file), file.string()));
  const JsonObject object = value_of(JsonObject::of(json, file.string()));
  const ConfigReader reader = value_of(ConfigReader::from_hf(object));
  ModelConfig config;
  auto status = value_of(find_model_family(reader))->configure(reader, config);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return config;
}

TEST(ConfigReader, BothLayoutsSayTheSame) {
  int compared = 0;
  for (const std::string& name : model_folders()) {
    if (!std::filesystem::exists(model_path(name) / "config_v5.json")) continue;
    EXPECT_EQ(text_of(configured(model_path(name) / "config.json")),
              text_of(configured(model_path(name) / "config_v5.json")))
        << name;
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

TEST(ConfigReader, PartialRotaryFactorMayStandAmongTheRopeParameters) {
  ModelCopy copy("phi3-longrope");
  auto json = nlohmann::json::parse(io_test::read_file(model_path("phi3-longrope") / "config_v5.json"));
  json.erase("partial_rotary_factor");
  copy.write("config.json", json.dump());
  EXPECT_EQ(value_of(ModelSource::open(copy.path())).config().rotary_dim, 24);
}

TEST(ConfigReader, GgufTwinsAgree) {
  int compared = 0;
  for (const std::string& name : model_folders()) {
    if (!std::filesystem::exists(model_path(name + ".gguf"))) continue;
    SCOPED_TRACE(name);
    const ModelConfig hf = value_of(ModelSource::open(model_path(name))).config();
    const ModelConfig gguf = value_of(ModelSource::open(model_path(name + ".gguf"))).config();
    auto sizes = [](const ModelConfig& c) {
      return std::vector<int64_t>{c.vocab_size,
                                  c.dim,
                                  c.ffn_dim,
                                  c.heads,
                                  c.kv_heads,
                                  c.head_dim,
                                  c.rotary_dim,
                                  c.context_length,
                                  c.experts,
                                  c.experts_per_token,
                                  static_cast<int>(c.activation),
                                  c.qk_norm,
                                  c.post_norms};
    };
    EXPECT_EQ(sizes(hf), sizes(gguf));
    EXPECT_FLOAT_EQ(hf.norm_eps, gguf.norm_eps);
    EXPECT_FLOAT_EQ(hf.logit_softcap, gguf.logit_softcap);
    EXPECT_FLOAT_EQ(hf.embedding_scale, gguf.embedding_scale);
    ASSERT_EQ(hf.layers.size(), gguf.layers.size());
    for (size_t i = 0; i < hf.layers.size(); ++i) {
      EXPECT_EQ(text_of(hf.layers[i]), text_of(gguf.layers[i])) << "layer " << i;
      const auto index = static_cast<size_t>(hf.layers[i].rope);
      const RopeTable want = make_rope_table(hf.ropes[index], hf, 200),
                      got = make_rope_table(gguf.ropes[index], gguf, 200);
      EXPECT_NEAR(want.magnitude, got.magnitude, 1e-6) << "layer " << i;
      for (size_t f = 0; f < want.inv_freq.size(); ++f)
        EXPECT_NEAR(got.inv_freq[f] / want.inv_freq[f], 1, 1e-6) << "layer " << i << " frequency " << f;
    }
    ++compared;
  }
  EXPECT_GE(compared, 12);
}

using Windows = std::vector<int32_t>;

Windows windows_of(const char* model, const char* patch) {
  ModelCopy copy(model);
  copy.patch("config.json", patch);
  Windows found;
  const ModelSource source = value_of(ModelSource::open(copy.path()));
  for (const LayerConfig& layer : source.config().layers) found.push_back(layer.window);
  return found;
}

TEST(ConfigReader, AllLayersOfQwenMoeMaySlide) {
  EXPECT_EQ(windows_of("qwen3-moe", R"({"use_sliding_window": true, "sliding_window": 24, "max_window_layers": 1})"),
            (Windows{24, 24}));
  EXPECT_EQ(windows_of("qwen3-moe", R"({"use_sliding_window": false, "sliding_window": 24})"), (Windows{0, 0}));
}

TEST(ConfigReader, TheUpperLayersOfQwenMaySlide) {
  for (const char* model : {"qwen2", "qwen3"}) {
    auto windows = [&](const char* patch) { return windows_of(model, patch); };
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 24, "max_window_layers": 1})"),
              (Windows{0, 24}))
        << model;
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 24, "max_window_layers": 2})"), (Windows{0, 0}))
        << model;
    EXPECT_EQ(windows(R"({"use_sliding_window": false, "sliding_window": 24, "max_window_layers": 1})"),
              (Windows{0, 0}))
        << model;
    EXPECT_EQ(windows(R"({"use_sliding_window": null, "sliding_window": 24, "max_window_layers": 1})"), (Windows{0, 0}))
        << model;
  }
}

struct Hostile {
  const char *patch, *mention;
  ErrorCode code = ErrorCode::kBadData;
};

void expect_refused(const char* model, std::span<const Hostile> cases) {
  for (const Hostile& hostile : cases) {
    ModelCopy copy(model);
    copy.patch("config.json", hostile.patch);
    expect_error(ModelSource::open(copy.path()), hostile.code, hostile.mention, hostile.patch);
  }
}

TEST(ConfigReader, HostileLlama) {
  const Hostile cases[] = {
      {R"({"architectures": null})", "'architectures' is missing", ErrorCode::kNotFound},
      {R"({"architectures": []})", "'architectures' is empty"},
      {R"({"architectures": "LlamaForCausalLM"})", "architectures"},
      {R"({"architectures": [7]})", "architectures"},
      {R"({"architectures": ["MambaForCausalLM"]})", "MambaForCausalLM", ErrorCode::kUnsupported},
      {R"({"architectures": ["MambaForCausalLM"]})", "LlamaForCausalLM", ErrorCode::kUnsupported},
      {R"({"architectures": ["MambaForCausalLM"]})", "Qwen3MoeForCausalLM", ErrorCode::kUnsupported},
      {R"({"num_hidden_layers": null})", "num_hidden_layers"},
      {R"({"num_hidden_layers": 0})", "0 layers"},
      {R"({"num_hidden_layers": -2})", "-2 layers"},
      {R"({"num_hidden_layers": 1e15})", "num_hidden_layers"},
      {R"({"num_hidden_layers": 1000000})", "1000000 layers"},
      {R"({"num_hidden_layers": 2.5})", "num_hidden_layers"},
      {R"({"num_hidden_layers": "2"})", "num_hidden_layers"},
      {R"({"num_hidden_layers": [2]})", "num_hidden_layers"},
      {R"({"hidden_size": 1e300})", "hidden_size"},
      {R"({"hidden_size": -64})", "embedding size"},
      {R"({"hidden_size": true})", "hidden_size"},
      {R"({"intermediate_size": 0})", "feed-forward size"},
      {R"({"num_attention_heads": 0})", "number of heads"},
      {R"({"num_attention_heads": -4})", "number of heads"},
      {R"({"num_attention_heads": 1e10})", "num_attention_heads"},
      {R"({"num_key_value_heads": 0})", "number of KV heads"},
      {R"({"num_key_value_heads": 3})", "cannot share"},
      {R"({"head_dim": 0})", "head size"},
      {R"({"head_dim": 12})", "multiple of 8", ErrorCode::kUnsupported},
      {R"({"head_dim": 9007199254740993})", "head_dim"},
      {R"({"max_position_embeddings": 0})", "context length"},
      {R"({"max_position_embeddings": -1})", "context length"},
      {R"({"max_position_embeddings": 1e18})", "max_position_embeddings"},
      {R"({"rms_norm_eps": "small"})", "rms_norm_eps"},
      {R"({"rms_norm_eps": 1e300})", "rms_norm_eps"},
      {R"({"rms_norm_eps": -1})", "norm epsilon"},
      {R"({"hidden_act": "relu"})", "'relu' is not supported", ErrorCode::kUnsupported},
      {R"({"hidden_act": 3})", "hidden_act"},
      {R"({"partial_rotary_factor": 0})", "partial_rotary_factor"},
      {R"({"partial_rotary_factor": 1.5})", "partial_rotary_factor"},
      {R"({"partial_rotary_factor": 0.01})", "rotary size"},
      {R"({"rope_theta": "big"})", "rope_theta"},
      {R"({"rope_theta": -1})", "RoPE base"},
      {R"({"rope_theta": 1e300})", "RoPE base"},
      {R"({"rope_scaling": [1]})", "rope_scaling"},
      {R"({"rope_scaling": {"type": "spiral"}})", "spiral", ErrorCode::kUnsupported},
      {R"({"rope_scaling": {"type": 3}})", "type"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0}})", "factor"},
      {R"({"rope_scaling": {"type": "linear", "factor": "4"}})", "factor"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 1e300}})", "factor"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": -1e300}})", "factor"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": -4}})",
       "original context"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1.5}})", "original_max"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "truncate": 1}})", "truncate"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_slow": 0}})", "beta_slow"},
      {R"({"rope_scaling": {"type": "longrope", "long_factor": [1, 2], "short_factor": [1]}})", "longrope needs 8"},
      {R"({"rope_scaling": {"type": "longrope", "long_factor": [1e300], "short_factor": [1]}})", "long_factor"},
      {R"({"rope_scaling": {"type": "longrope", "long_factor": "x"}})", "long_factor"},
      {R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4}})", "low_freq_factor"},
      {R"({"text_config": 5})", "text_config"},
  };
  expect_refused("llama", cases);
}

TEST(ConfigReader, HostileFamilies) {
  const Hostile windows[] = {
      {R"({"sliding_window": -5})", "window -5"},
      {R"({"sliding_window": 1e300})", "sliding_window"},
      {R"({"layer_types": ["sliding_attention"]})", "layer_types lists 1"},
      {R"({"layer_types": ["sliding_attention", "chunked_attention", "full_attention", "full_attention"]})",
       "chunked_attention", ErrorCode::kUnsupported},
      {R"({"layer_types": [1, 2, 3, 4]})", "layer_types"},
      {R"({"query_pre_attn_scalar": 0})", "attention scale"},
      {R"({"query_pre_attn_scalar": -8})", "attention scale"},
      {R"({"attn_logit_softcapping": -50})", "attention soft cap"},
      {R"({"final_logit_softcapping": 1e300})", "final_logit_softcapping"},
  };
  expect_refused("gemma2", windows);
  const Hostile pattern[] = {{R"({"sliding_window_pattern": 0})", "sliding_window_pattern"}};
  expect_refused("gemma3", pattern);
  const Hostile experts[] = {
      {R"({"num_experts": -1})", "number of experts"},
      {R"({"num_experts": 0})", "number of experts"},
      {R"({"num_experts": 1e9})", "number of experts"},
      {R"({"num_experts_per_tok": 5})", "experts per token"},
      {R"({"num_experts_per_tok": null})", "num_experts_per_tok"},
      {R"({"decoder_sparse_step": 0})", "decoder_sparse_step"},
      {R"({"decoder_sparse_step": -3})", "decoder_sparse_step"},
      {R"({"mlp_only_layers": "all"})", "mlp_only_layers"},
      {R"({"norm_topk_prob": 1})", "norm_topk_prob"},
      {R"({"moe_intermediate_size": 0})", "expert feed-forward size"},
  };
  expect_refused("qwen3-moe", experts);
}

// A GGUF file of settings alone, with one token's embedding so that it gets as far as validate().
Result<ModelSource> gguf_with(std::string_view key, GgufValue value) {
  GgufWriter writer;
  GgufMetadata& meta = writer.metadata();
  auto set = [&](std::string_view k, GgufValue v) { EXPECT_TRUE(meta.set(k, std::move(v)).has_value()); };
  set("general.architecture", std::string("llama"));
  for (auto [name, number] : {std::pair<const char*, uint32_t>{"block_count", 1},
                              {"embedding_length", 16},
                              {"feed_forward_length", 16},
                              {"attention.head_count", 2},
                              {"context_length", 64}})
    set(std::string("llama.") + name, number);
  set(key, std::move(value));
  const std::vector<float> row(16, 0.5F);
  EXPECT_TRUE(writer.add("token_embd.weight", DType::kF32, {1, 16}, std::as_bytes(std::span(row))).has_value());
  auto bytes = std::make_shared<std::string>();
  auto sink = [&](std::span<const std::byte> part) -> Status {
    bytes->append(reinterpret_cast<const char*>(part.data()), part.size());
    return {};
  };
  EXPECT_TRUE(writer.write(sink).has_value());
  return ModelSource::from_memory(bytes, std::as_bytes(std::span(*bytes)), "hostile.gguf");
}

TEST(ConfigReader, HostileGguf) {
  EXPECT_TRUE(gguf_with("general.name", std::string("sound")).has_value());
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct {
    const char* key;
    GgufValue value;
    const char* mention;
    ErrorCode code = ErrorCode::kBadData;
  } cases[] = {
      {"general.architecture", std::string("mamba"), "'mamba' is not supported; there are gemma2",
       ErrorCode::kUnsupported},
      {"general.architecture", uint32_t{7}, "general.architecture"},
      {"llama.block_count", std::string("many"), "llama.block_count"},
      {"llama.block_count", nan, "llama.block_count"},
      {"llama.block_count", uint64_t{1} << 63, "llama.block_count"},
      {"llama.block_count", int32_t{-1}, "-1 layers"},
      {"llama.attention.head_count", GgufArray(std::vector<uint32_t>{2, 2}), "llama.attention.head_count"},
      {"llama.attention.layer_norm_rms_epsilon", nan, "rms_epsilon"},
      {"llama.rope.freq_base", inf, "rope.freq_base"},
      {"llama.rope.freq_base", nan, "rope.freq_base"},
      {"llama.rope.dimension_count", uint32_t{0}, "rotary size"},
      {"llama.rope.dimension_count", uint32_t{64}, "rotary size"},
      {"llama.rope.scaling.type", std::string("spiral"), "spiral", ErrorCode::kUnsupported},
      {"llama.rope.scaling.type", std::string("longrope"), "longrope needs 4"},
      {"llama.rope.scaling.factor", nan, "rope.scaling.factor"},
      {"llama.rope.scaling.factor", -1.0F, "factor"},
      {"llama.expert_count", uint32_t{100000}, "llama.expert_used_count"},
      {"llama.attention.sliding_window", int32_t{-7}, "window -7"},
  };
  for (const auto& c : cases) expect_error(gguf_with(c.key, c.value), c.code, c.mention, c.key);
}

}  // namespace
}  // namespace godwit
