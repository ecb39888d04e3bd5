// Tensors by name in either spelling; files that lack some or hold other shapes than their settings say.
#include <set>

#include <gtest/gtest.h>

#include "io/gguf_writer.h"
#include "model/test_models.h"
#include "model/weights.h"

namespace godwit {
namespace {

using io_test::expect_error;
using model_test::model_path;
using model_test::ModelCopy;
using model_test::value_of;

const ModelFamily& family(std::string_view name) {
  for (const ModelFamily* f : all_model_families())
    if (f->name == name) return *f;
  throw std::runtime_error("no family " + std::string(name));
}

TEST(TensorNames, FollowTheFamily) {
  EXPECT_EQ(hf_tensor_name(family("llama"), "blk.17.attn_q.weight"), "model.layers.17.self_attn.q_proj.weight");
  EXPECT_EQ(hf_tensor_name(family("llama"), "blk.0.ffn_norm.weight"), "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(hf_tensor_name(family("gemma2"), "blk.0.ffn_norm.weight"),
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hf_tensor_name(family("mixtral"), "blk.3.ffn_up_exps.weight"),
            "model.layers.3.block_sparse_moe.experts.[].w3.weight");
  EXPECT_EQ(hf_tensor_name(family("llama"), "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(hf_tensor_name(family("llama"), "blk.0.unknown.weight"), "");
  EXPECT_EQ(hf_tensor_name(family("llama"), "blk."), "");
  EXPECT_EQ(hf_tensor_name(family("llama"), "blk"), "");
  EXPECT_EQ(hf_tensor_name(family("llama"), ""), "");
}

// Every tensor of a GGUF file has a place in the folder that it was made from, and no two the same.
TEST(TensorNames, EveryTensorOfATwinIsInItsFolder) {
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "qwen3-moe"}) {
    SCOPED_TRACE(name);
    const ModelSource hf = value_of(ModelSource::open(model_path(name)));
    const ModelSource gguf = value_of(ModelSource::open(model_path(std::string(name) + ".gguf")));
    std::set<const TensorEntry*> seen;
    size_t pieces = 0;
    for (const TensorEntry& entry : gguf.gguf()->tensors()) {
      for (const TensorEntry* piece : value_of(hf.tensor(entry.name))) {
        seen.insert(piece);
        ++pieces;
      }
    }
    EXPECT_EQ(seen.size(), pieces);
    EXPECT_EQ(pieces, hf.folder()->weights().tensors().size());
  }
}

TEST(ModelSource, WhatIsNotThere) {
  EXPECT_FALSE(ModelSource::open("/no/such/model.gguf").has_value());
  io_test::TempFolder empty;
  EXPECT_FALSE(ModelSource::open(empty.path()).has_value());
  expect_error(value_of(ModelSource::open(model_path("llama.gguf"))).tensor("blk.0.attn_x.weight"),
               ErrorCode::kNotFound, "blk.0.attn_x.weight");
  expect_error(value_of(ModelSource::open(model_path("llama"))).tensor("blk.9.attn_q.weight"), ErrorCode::kNotFound,
               "model.layers.9.self_attn.q_proj.weight");
}

TEST(ModelSource, TheEmbeddingSaysTheVocabulary) {
  ModelCopy copy("llama");
  copy.patch("config.json", R"({"vocab_size": 99999})");
  EXPECT_EQ(value_of(ModelSource::open(copy.path())).config().vocab_size, 352);
}

TEST(ModelSource, QuantizedFoldersAreRefusedByName) {
  for (const char* patch : {R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})",
                            R"({"compression_config": {"quant_method": "gptq"}})",
                            R"({"text_config": {"quantization_config": {"quant_method": "gptq"}}})"}) {
    ModelCopy copy("llama");
    copy.patch("config.json", patch);
    expect_error(ModelSource::open(copy.path()), ErrorCode::kUnsupported, "quantized by gptq", patch);
  }
  ModelCopy copy("llama");
  copy.patch("config.json", R"({"quantization_config": {}})");
  expect_error(ModelSource::open(copy.path()), ErrorCode::kUnsupported, "quantization_config");
}

TEST(ModelSource, PartsOfASplitModelAreRefused) {
  GgufWriter writer;
  ASSERT_TRUE(writer.metadata().set("general.architecture", std::string("llama")));
  ASSERT_TRUE(writer.metadata().set("split.count", uint16_t{3}));
  std::vector<std::byte> file;
  ASSERT_TRUE(writer.write([&](std::span<const std::byte> bytes) -> Status {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return {};
  }));
  expect_error(ModelSource::from_memory(nullptr, file, "part.gguf"), ErrorCode::kUnsupported, "one of 3 parts");
}

TEST(Weights, SettingsThatDoNotFitTheTensors) {
  struct {
    const char *model, *patch, *mention;
    ErrorCode code = ErrorCode::kBadData;
  } cases[] = {
      {"llama", R"({"num_hidden_layers": 3})", "model.layers.2.", ErrorCode::kNotFound},
      {"llama", R"({"hidden_size": 128})", "has the shape [352, 64]"},
      {"llama", R"({"intermediate_size": 97})", "has the shape [96, 64]"},
      {"llama", R"({"num_key_value_heads": 1})", "k_proj"},
      {"qwen3", R"({"head_dim": 16})", "q_proj"},
      {"qwen3-moe", R"({"num_experts": 5})", "has the shape [4, 64]"},
      {"qwen3-moe", R"({"moe_intermediate_size": 8})", "experts"},
      {"mixtral", R"({"num_local_experts": 3})", "gate"},
      {"phi3", R"({"num_key_value_heads": 2})", "qkv_proj"},
      {"gemma2", R"({"architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_act": "silu"})", "q_proj"},
  };
  auto backend = value_of(make_cpu_backend({.threads = 1, .simd = "reference"}));
  for (const auto& c : cases) {
    ModelCopy copy(c.model);
    copy.patch("config.json", c.patch);
    auto source = ModelSource::open(copy.path());
    ASSERT_TRUE(source.has_value()) << c.patch << ": " << source.error().message;
    expect_error(load_weights(*backend, *source, {}), c.code, c.mention, c.patch);
  }
}

}  // namespace
}  // namespace godwit
