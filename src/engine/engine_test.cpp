// Opening an engine: what it says of itself, and what it refuses.
#include <gtest/gtest.h>

#include "engine/convert.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(Engine, SaysWhatItIs) {
  EngineOptions options = options_for("qwen3");
  double share = 0;
  options.on_load = [&](double now) {
    EXPECT_GE(now, share);
    share = now;
  };
  const EngineInfo info = open(options).info();
  EXPECT_EQ(share, 1.0);
  EXPECT_EQ(info.family, "qwen3");
  EXPECT_EQ(info.model, options.model);
  EXPECT_EQ(info.vocab_size, 320);
  EXPECT_EQ(info.context_tokens, 2048);
  EXPECT_EQ(info.kv_codec, "f16");
  EXPECT_EQ(info.kv_bytes_per_token, 2 * 1 * 2 * 32 * 2);  // layers, KV heads, K and V, head size, f16
  EXPECT_GT(info.weight_bytes, 0U);
  EXPECT_EQ(info.kv_bytes_in_use, 0U);
  EXPECT_FALSE(info.backend.empty());
}

TEST(Engine, RefusesBadOptions) {
  struct {
    const char* what;
    std::function<void(EngineOptions&)> change;
    const char* mention;
    ErrorCode code = ErrorCode::kInvalidArgument;
  } cases[] = {
      {"threads", [](auto& o) { o.threads = -1; }, "-1 threads"},
      {"threads", [](auto& o) { o.threads = 1000000; }, "1000000 threads"},
      {"chunk", [](auto& o) { o.prefill_chunk = 0; }, "prefill chunk of 0"},
      {"chunk", [](auto& o) { o.prefill_chunk = -8; }, "prefill chunk of -8"},
      {"chunk", [](auto& o) { o.prefill_chunk = 1 << 20; }, "prefill chunk"},
      {"context", [](auto& o) { o.context_tokens = -1; }, "context of -1"},
      {"context", [](auto& o) { o.context_tokens = 2049; }, "made for 2048"},
      {"budget", [](auto& o) { o.kv_budget_bytes = 1; }, "budget is 1 B", ErrorCode::kExhausted},
      {"budget", [](auto& o) { o.kv_budget_bytes = UINT64_MAX; }, "leave only", ErrorCode::kExhausted},
  };
  for (const auto& c : cases) {
    EngineOptions options = options_for("qwen3");
    c.change(options);
    expect_error(Engine::open(options), c.code, c.mention, c.what);
  }
}

TEST(Engine, RefusesUnknownNamesAndListsTheKnown) {
  struct {
    const char* what;
    std::function<void(EngineOptions&)> change;
    std::vector<std::string> mentions;
  } cases[] = {
      {"codec", [](auto& o) { o.kv_codec = "zip"; }, {"zip", "f16"}},
      {"codec options", [](auto& o) { o.kv_codec = "f16:bits=2"; }, {"bits"}},
      {"codec syntax", [](auto& o) { o.kv_codec = "f16:"; }, {"f16:"}},
      {"no codec", [](auto& o) { o.kv_codec = ""; }, {"no KV codec is named ''", "f16"}},
      {"prefill", [](auto& o) { o.prefill = "psychic"; }, {"psychic", "dense"}},
      {"decode", [](auto& o) { o.decode = "psychic"; }, {"psychic", "dense"}},
      {"simd", [](auto& o) { o.simd = "mmx"; }, {"mmx", "reference"}},
  };
  for (const auto& c : cases) {
    EngineOptions options = options_for("qwen3");
    c.change(options);
    auto engine = Engine::open(options);
    ASSERT_FALSE(engine.has_value()) << c.what;
    for (const std::string& mention : c.mentions)
      EXPECT_NE(engine.error().message.find(mention), std::string::npos) << c.what << ": " << engine.error().message;
  }
}

TEST(Engine, RefusesBadFiles) {
  EngineOptions options;
  options.model = "/no/such/model.gguf";
  EXPECT_NE(Engine::open(options).error().message.find("/no/such/model.gguf"), std::string::npos);
  io_test::TempFolder folder;
  options.model = folder.path().string();
  EXPECT_FALSE(Engine::open(options).has_value());
  io_test::write_file(folder / "text.gguf", "this is no model");
  options.model = (folder / "text.gguf").string();
  expect_error(Engine::open(options), ErrorCode::kBadData, "text.gguf");

  struct {
    const char *file, *patch, *mention;
  } cases[] = {
      {"generation_config.json", R"({"eos_token_id": 4294967615})", "end token 4294967615"},
      {"generation_config.json", R"({"eos_token_id": [2, -7]})", "end token -7"},
      {"generation_config.json", R"({"eos_token_id": 320})", "end token 320"},
      {"generation_config.json", R"({"eos_token_id": "<|im_end|>"})", "eos_token_id"},
      {"generation_config.json", R"({"eos_token_id": 2.5})", "eos_token_id"},
      {"generation_config.json", R"({"do_sample": true, "temperature": -1})", "temperature is -1"},
      {"generation_config.json", R"({"do_sample": true, "top_p": "most"})", "top_p"},
  };
  for (const auto& c : cases) {
    ModelCopy copy("qwen3");
    copy.patch(c.file, c.patch);
    options.model = copy.path().string();
    expect_error(Engine::open(options), ErrorCode::kBadData, c.mention, c.patch);
  }
  ModelCopy copy("qwen3");
  options.model = copy.path().string();
  copy.write("tokenizer.json", "{");
  expect_error(Engine::open(options), ErrorCode::kBadData, "tokenizer.json: not valid JSON");
  copy.remove("tokenizer.json");
  expect_error(Engine::open(options), ErrorCode::kNotFound, "tokenizer.json is missing; download it");
}

TEST(Engine, RecommendsTheSamplingOfItsFile) {
  struct {
    const char* patch;
    float temperature, top_p, min_p, repetition_penalty;
    int top_k;
  } cases[] = {
      {"{}", 0.25F, 1, 0, 1, 0},
      {R"({"do_sample": true})", 1, 1, 0, 1, 0},
      {R"({"do_sample": true, "temperature": 0.5, "top_p": 0.75, "top_k": 20})", 0.5F, 0.75F, 0, 1, 20},
      {R"({"do_sample": true, "min_p": 0.125, "top_k": -1})", 1, 1, 0.125F, 1, 0},
      {R"({"do_sample": false, "temperature": 0.5, "repetition_penalty": 1.5})", 0.25F, 1, 0, 1.5F, 0},
      {R"({"temperature": 0.5, "top_k": 20})", 0.25F, 1, 0, 1, 0},
  };
  io_test::TempFolder folder;
  for (const auto& c : cases) {
    ModelCopy copy("qwen3");
    copy.patch("generation_config.json", c.patch);
    const std::string gguf = (folder / "copy.gguf").string();
    ConvertOptions convert;
    convert.dtype = DType::kF32;
    ASSERT_TRUE(convert_model(ModelSource::open(copy.path()).value(), convert, gguf));
    SamplingOptions otherwise;
    otherwise.temperature = 0.25F;
    for (const std::string& model : {copy.path().string(), gguf}) {
      EngineOptions options;
      options.model = model;
      const SamplingOptions s = open(options).recommended_sampling(otherwise);
      EXPECT_EQ(s.temperature, c.temperature) << c.patch;
      EXPECT_EQ(s.top_p, c.top_p) << c.patch;
      EXPECT_EQ(s.min_p, c.min_p) << c.patch;
      EXPECT_EQ(s.repetition_penalty, c.repetition_penalty) << c.patch;
      EXPECT_EQ(s.top_k, c.top_k) << c.patch;
    }
  }
}

TEST(Engine, RefusesATokenizerBiggerThanTheModel) {
  ModelCopy copy("qwen3");
  auto json = nlohmann::json::parse(io_test::read_file(model_path("qwen3") / "tokenizer.json"));
  auto token = json["added_tokens"].back();
  token["id"] = 320;
  token["content"] = "<|one_too_many|>";
  json["added_tokens"].push_back(token);
  copy.write("tokenizer.json", json.dump());
  EngineOptions options;
  options.model = copy.path().string();
  expect_error(Engine::open(options), ErrorCode::kBadData, "the tokenizer knows 321 tokens, but the model only 320");
}

TEST(Engine, BuiltInModelOpens) {
  EngineOptions options;
  options.context_tokens = 128;
  auto engine = Engine::open(options);
  if (!engine && engine.error().code == ErrorCode::kNotFound) GTEST_SKIP() << engine.error().message;
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  Session session = engine->start();
  ASSERT_TRUE(session.append_text("Once upon a time").has_value());
  EXPECT_EQ(value_of(session.generate(greedy(4))).tokens.size(), 4U);
}

}  // namespace
}  // namespace godwit
