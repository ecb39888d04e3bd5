// Tiny models of every family against transformers (tests/data/models/README.md): logits, greedy tokens, and that
// neither depends on how the prompt is cut into chunks. Every model runs from each of its files, on the guarded
// back-end, whose memory only its own operations can touch, and, converted by our own writer, once more from GGUF.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "engine/convert.h"
#include "engine/vocabulary.h"
#include "kv/codec.h"
#include "model/decoder.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(GODWIT_TEST_DATA) / "models";

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

struct Case {
  std::string name;
  std::vector<int32_t> prompt, positions, greedy;
  std::vector<float> logits, final_logits;  // [positions, vocab], [vocab]
  int64_t context = 0;
};

template <class T>
std::vector<T> tensor_values(const Safetensors& file, const std::string& name) {
  const TensorEntry* entry = value_of(file.find(name));
  if (entry == nullptr) return {};
  std::vector<T> values(entry->bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  return values;
}

std::vector<Case> read_cases(const fs::path& folder) {
  Safetensors file = value_of(Safetensors::open(folder / "golden.safetensors"));
  std::vector<Case> cases;
  std::stringstream names(file.metadata().at("cases"));
  for (std::string name; std::getline(names, name, ',');) {
    Case c;
    c.name = name;
    c.prompt = tensor_values<int32_t>(file, name + ".prompt");
    c.positions = tensor_values<int32_t>(file, name + ".positions");
    c.greedy = tensor_values<int32_t>(file, name + ".greedy");
    c.logits = tensor_values<float>(file, name + ".logits");
    c.final_logits = tensor_values<float>(file, name + ".final_logits");
    c.context = tensor_values<int32_t>(file, name + ".context").at(0);
    cases.push_back(std::move(c));
  }
  return cases;
}

// A model, a cache and a sequence, stepped by hand.
class Runner {
 public:
  Runner(Backend& backend, const ModelSource& source, int64_t context)
      : backend_(backend),
        model_(value_of(Model::load(backend, source, context))),
        workspace_(value_of(Workspace::create(backend, model_->config(), 256, 8))),
        pool_(value_of(KvPool::create(backend, value_of(make_kv_format("f32", model_->config().head_dim)), 2 << 20))),
        sequence_(*pool_, model_->kv_shape()),
        planner_(value_of(make_prefill_planner("dense"))) {}

  // Runs the tokens in chunks; returns the logits [positions, vocab] at the given positions.
  std::vector<float> run(std::span<const int32_t> tokens, size_t chunk, std::span<const int32_t> positions) {
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
      const int32_t first = sequence_.next_position(), rows = static_cast<int32_t>(part.size());
      GODWIT_CHECK(sequence_.append(rows));
      AttentionSegment segment{&sequence_, 0, rows, first};
      PlannedSegments group{planner_.get(), {&segment, 1}};
      model_->forward(workspace_, {.tokens = part, .groups = {&group, 1}});
      for (int32_t position : positions) {
        if (position < first || position >= first + rows) continue;
        const int32_t row = position - first;
        std::vector<float> values(static_cast<size_t>(model_->config().vocab_size));
        Tensor logits = model_->logits(workspace_, {&row, 1});
        backend_.download(std::as_writable_bytes(std::span(values)), logits.data);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Model> model_;
  Workspace workspace_;
  std::unique_ptr<KvPool> pool_;
  KvSequence sequence_;
  std::unique_ptr<AttentionPlanner> planner_;
};

// Largest difference relative to the largest logit.
double error(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, scale = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - want[i]));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return difference / scale;
}

// How close a target must come to transformers in fp32: relative to the largest logit, and whether its greedy tokens
// must be the same. Tiny random models make the most of the 2^-9 that bf16 operands round by: a row may even go to
// another expert.
struct Bound {
  double error;
  bool greedy;
};
constexpr Bound kFp32{1e-4, true}, kBf16{0.1, false};

void check_case(Backend& backend, const ModelSource& source, const Case& c, bool all_chunks, const Bound& bound) {
  SCOPED_TRACE(source.label() + " " + c.name);
  std::vector<float> first;
  const std::vector<size_t> chunks =
      all_chunks ? std::vector<size_t>{c.prompt.size(), 1, 7, 64} : std::vector<size_t>{64};
  for (size_t chunk : chunks) {
    Runner runner(backend, source, c.context);
    std::vector<float> logits = runner.run(c.prompt, chunk, c.positions);
    EXPECT_LT(error(logits, c.logits), bound.error) << "chunk " << chunk;
    if (first.empty()) first = logits;
    EXPECT_TRUE(first == logits) << "chunk " << chunk << " changes the bits";
    if (!bound.greedy) continue;

    std::vector<int32_t> greedy;
    std::vector<float> last(logits.end() - static_cast<ptrdiff_t>(logits.size() / c.positions.size()), logits.end());
    while (greedy.size() < c.greedy.size()) {
      greedy.push_back(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
      if (greedy.size() == c.greedy.size()) break;
      const auto position = static_cast<int32_t>(c.prompt.size() + greedy.size() - 1);
      last = runner.run({&greedy.back(), 1}, 1, {&position, 1});
    }
    EXPECT_EQ(greedy, c.greedy) << "chunk " << chunk;
    if (!c.final_logits.empty()) {
      EXPECT_LT(error(last, c.final_logits), bound.error) << "chunk " << chunk;
    }
  }
}

// GGUF has no field for what these exercise; every other model comes as NAME.gguf, too.
const std::vector<std::string> kWithoutGguf = {"llama-dynamic", "llama-yarn-mscale", "qwen2-window", "qwen3-moe-mixed"};

bool has_gguf(const std::string& name) {
  return std::find(kWithoutGguf.begin(), kWithoutGguf.end(), name) == kWithoutGguf.end();
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return kModels / GetParam(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths = {folder()};
    if (has_gguf(GetParam())) paths.push_back(kModels / (GetParam() + ".gguf"));
    return paths;
  }

  void check(Backend& backend, const fs::path& path, bool all_chunks, const Bound& bound = kFp32) const {
    ModelSource source = value_of(ModelSource::open(path));
    for (const Case& c : read_cases(folder())) check_case(backend, source, c, all_chunks, bound);
  }
};

TEST_P(Golden, MatchesTransformers) {
  auto backend = value_of(make_cpu_backend({.threads = 0, .simd = cpu_fp32_target()}));
  for (const fs::path& path : files()) check(*backend, path, true);
}

TEST_P(Golden, TheDefaultTargetComesClose) {
  auto backend = value_of(make_cpu_backend({}));
  const Bound& bound = cpu_simd_targets().front() == cpu_fp32_target() ? kFp32 : kBf16;
  for (const fs::path& path : files()) check(*backend, path, true, bound);
}

TEST_P(Golden, EverySimdTargetMatches) {
  bool fp32 = false;
  for (const std::string& target : cpu_simd_targets()) {
    SCOPED_TRACE(target);
    fp32 |= target == cpu_fp32_target();
    auto backend = value_of(make_cpu_backend({.threads = 1, .simd = target}));
    check(*backend, folder(), false, fp32 ? kFp32 : kBf16);
  }
  auto reference = value_of(make_cpu_backend({.threads = 1, .simd = "reference"}));
  check(*reference, folder(), false);
}

TEST_P(Golden, NothingTouchesTensorBytesOutsideTheBackend) {
  auto backend = value_of(make_guarded_backend({.threads = 2, .simd = cpu_fp32_target()}));
  for (const fs::path& path : files()) check(*backend, path, path == folder());
}

TEST_P(Golden, OurOwnConversionKeepsTheNumbers) {
  ModelSource source = value_of(ModelSource::open(folder()));
  const fs::path path = fs::path(testing::TempDir()) / (GetParam() + "-converted.gguf");
  ConvertOptions options;
  options.dtype = DType::kBF16;  // exact: the weights are bf16 numbers
  auto report = convert_model(source, options, path);
  if (GetParam() == "llama-yarn-mscale") {
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message.find("YaRN"), std::string::npos);
    return;
  }
  ASSERT_TRUE(report) << report.error().message;
  auto backend = value_of(make_cpu_backend({.threads = 0, .simd = cpu_fp32_target()}));
  check(*backend, path, false);
  fs::remove(path);
}

TEST_P(Golden, TextBecomesTheSameTokens) {
  const Safetensors golden = value_of(Safetensors::open(folder() / "golden.safetensors"));
  const auto want = tensor_values<int32_t>(golden, "text_ids");
  for (const fs::path& path : files()) {
    SCOPED_TRACE(path.string());
    Vocabulary vocabulary = value_of(load_vocabulary(value_of(ModelSource::open(path)), {}));
    EXPECT_EQ(value_of(vocabulary.tokenizer.encode(golden.metadata().at("text"))), want);
    ASSERT_TRUE(vocabulary.chat) << vocabulary.chat_error;
    auto messages = nlohmann::ordered_json::parse(golden.metadata().at("chat_messages"));
    EXPECT_EQ(value_of(vocabulary.chat->apply(messages)), golden.metadata().at("chat_text"));
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kModels))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(model_names()), [](const auto& model) {
  std::string name = model.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GoldenSet, AllButTheListedModelsComeAsGguf) {
  for (const std::string& name : model_names())
    EXPECT_EQ(fs::exists(kModels / (name + ".gguf")), has_gguf(name)) << name;
  for (const std::string& name : kWithoutGguf) EXPECT_TRUE(fs::exists(kModels / name)) << name;
}

TEST(GoldenSet, CoversEveryFamily) {
  std::vector<std::string> families;
  for (const std::string& name : model_names())
    families.push_back(value_of(ModelSource::open(kModels / name)).config().family);
  for (const ModelFamily* family : all_model_families())
    EXPECT_NE(std::find(families.begin(), families.end(), family->name), families.end()) << family->name;
}

}  // namespace
}  // namespace godwit
