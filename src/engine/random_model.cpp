#include "engine/random_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "base/thread_pool.h"
#include "engine/vocabulary.h"
#include "io/gguf_writer.h"
#include "model/gguf_settings.h"
#include "tensor/quant.h"
#include "text/byte_map.h"

namespace godwit {
namespace {

// A number for a number: splitmix64's finaliser, so that any part of a tensor can be made without those before it.
uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Stretches of random weights, encoded once. Encoding billions of numbers takes minutes; a row drawn from thousands of
// encoded stretches is as random for every purpose of a benchmark.
struct Stretches {
  static constexpr size_t kCount = 4096;
  size_t elements = 0, bytes_each = 0;
  std::vector<std::byte> bytes;
};

class RandomWriter {
 public:
  RandomWriter(const ModelShape& shape, uint64_t seed, const ConvertOptions& options)
      : shape_(shape), seed_(seed), options_(options), pool_(options.threads) {}

  Result<ConvertReport> run(const std::filesystem::path& path) {
    GgufWriter writer;
    GODWIT_TRY(settings(writer));
    uint64_t index = 0;
    for (const ShapeTensor& tensor : shape_tensors(shape_)) GODWIT_TRY(add(writer, tensor, index++));
    GODWIT_ASSIGN(report_.bytes, writer.file_bytes());
    GODWIT_TRY(writer.write(path));
    return report_;
  }

 private:
  Status settings(GgufWriter& writer) {
    GgufMetadata& meta = writer.metadata();
    GODWIT_ASSIGN(extra_, write_settings(shape_.config, *shape_.family, meta));
    GODWIT_TRY(meta.set("general.name", options_.name.empty() ? shape_.name + ", random weights" : options_.name));
    GODWIT_TRY(meta.set("general.quantization_version", uint32_t{2}));
    GODWIT_TRY(write_vocab(made_up_vocab(shape_.config.vocab_size), meta));
    return add_settings_tensors(extra_, writer);
  }

  Status add(GgufWriter& writer, const ShapeTensor& tensor, uint64_t index) {
    const int64_t columns = tensor.shape.back();
    const WeightType type = choose_weight_type(tensor.name, tensor.shape, options_);
    if (type.exception) report_.exceptions.emplace_back(tensor.name, type.dtype);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    const auto numbers = static_cast<uint64_t>(rows * columns);
    report_.weights += numbers;
    total_bytes_ += dtype_bytes(type.dtype, numbers);
    if (tensor.shape.size() == 1) {
      const float value = tensor.name.find("norm") != std::string::npos ? 1.0F : 0.0F;
      return writer.add(tensor.name, type.dtype, tensor.shape, [columns, value](const GgufWriter::Sink& sink) {
        const std::vector<float> values(static_cast<size_t>(columns), value);
        return sink(std::as_bytes(std::span(values)));
      });
    }
    return writer.add(tensor.name, type.dtype, tensor.shape, [=, this](const GgufWriter::Sink& sink) {
      return fill(stretches(type.dtype, columns), numbers, scramble(seed_ ^ scramble(index)), sink);
    });
  }

  const Stretches& stretches(DType dtype, int64_t columns) {
    auto [found, is_new] = stretches_.try_emplace({dtype, columns});
    Stretches& s = found->second;
    if (!is_new) return s;
    s.elements = static_cast<size_t>(std::gcd(columns, int64_t{256}));
    s.bytes_each = dtype_bytes(dtype, s.elements);
    s.bytes.resize(Stretches::kCount * s.bytes_each);
    std::vector<float> values(Stretches::kCount * s.elements);
    std::mt19937_64 generator(seed_ ^ static_cast<uint64_t>(columns));
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
    for (float& value : values) value = normal(generator);
    pool_.parallel_for(Stretches::kCount, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      quantize(dtype, values.data() + at * s.elements, s.bytes.data() + at * s.bytes_each, s.elements);
    });
    return s;
  }

  Status fill(const Stretches& s, uint64_t numbers, uint64_t key, const GgufWriter::Sink& sink) {
    constexpr uint64_t kBatch = 1 << 14, kPart = 1 << 8;  // stretches
    const uint64_t count = numbers / s.elements;
    std::vector<std::byte> out;
    for (uint64_t begin = 0; begin < count; begin += kBatch) {
      const uint64_t end = std::min(count, begin + kBatch);
      out.resize((end - begin) * s.bytes_each);
      pool_.parallel_for(static_cast<int64_t>((end - begin + kPart - 1) / kPart), [&](int64_t part) {
        const uint64_t first = begin + static_cast<uint64_t>(part) * kPart;
        for (uint64_t i = first; i < std::min(end, first + kPart); ++i) {
          const size_t from = scramble(key + i) % Stretches::kCount * s.bytes_each;
          std::copy_n(s.bytes.data() + from, s.bytes_each, out.data() + (i - begin) * s.bytes_each);
        }
      });
      GODWIT_TRY(sink(out));
      done_bytes_ += out.size();
      if (options_.on_progress)
        options_.on_progress(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
    }
    return {};
  }

  const ModelShape& shape_;
  const uint64_t seed_;
  const ConvertOptions& options_;
  ThreadPool pool_;
  std::map<std::pair<DType, int64_t>, Stretches> stretches_;
  std::vector<SettingsTensor> extra_;
  ConvertReport report_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace

GgufVocab made_up_vocab(int64_t size) {
  GODWIT_CHECK(size > 258);
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  vocab.add_bos = true;
  const auto ordinary = static_cast<size_t>(size - 2);
  for (size_t id = 0; id < ordinary; ++id) {
    const char last = static_cast<char>(id % 256);
    const std::string letter = bytes_to_chars({&last, 1});
    if (id < 256) {
      vocab.tokens.push_back(letter);
      continue;
    }
    const std::string& before = vocab.tokens[id / 256 - 1];
    vocab.merges.push_back(fmt::format("{} {}", before, letter));
    vocab.tokens.push_back(before + letter);
  }
  vocab.types.assign(ordinary, static_cast<int32_t>(GgufTokenType::kNormal));
  for (const char* special : {"<|begin_of_text|>", "<|end_of_text|>"}) {
    vocab.tokens.emplace_back(special);
    vocab.types.push_back(static_cast<int32_t>(GgufTokenType::kControl));
  }
  vocab.bos = static_cast<TokenId>(size - 2);
  vocab.eos = static_cast<TokenId>(size - 1);
  return vocab;
}

Result<ConvertReport> write_random_model(const ModelShape& shape, uint64_t seed, const ConvertOptions& options,
                                         const std::filesystem::path& path) {
  return RandomWriter(shape, seed, options).run(path);
}

}  // namespace godwit
