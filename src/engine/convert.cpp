#include "engine/convert.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "engine/sampling_defaults.h"
#include "engine/vocabulary.h"
#include "io/gguf_writer.h"
#include "model/gguf_settings.h"
#include "tensor/quant.h"

namespace godwit {
namespace {

// The last part that names something: of "models/tiny/" and "models/tiny/." it is "tiny".
std::string folder_name(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.filename().string();
}

struct OutTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<const TensorEntry*> pieces;
  int head_rows = 0;  // > 0: rows of each head go from halves to pairs
  float add = 0;
};

class Converter {
 public:
  Converter(const ModelSource& source, const ConvertOptions& options)
      : source_(source), options_(options), pool_(options.threads) {}

  Result<ConvertReport> run(const std::filesystem::path& path) {
    GgufWriter writer;
    GODWIT_TRY(settings(writer));
    GODWIT_ASSIGN(auto tensors, choose());
    for (const OutTensor& t : tensors) {
      GODWIT_TRY(
          writer.add(t.name, t.dtype, t.shape, [this, &t](const GgufWriter::Sink& sink) { return convert(t, sink); }));
      for (const TensorEntry* piece : t.pieces) total_bytes_ += piece->bytes.size();
    }
    GODWIT_ASSIGN(report_.bytes, writer.file_bytes());
    GODWIT_TRY(writer.write(path));
    return report_;
  }

 private:
  Status settings(GgufWriter& writer) {
    GgufMetadata& meta = writer.metadata();
    if (const Gguf* gguf = source_.gguf()) {
      for (const auto& item : gguf->metadata().items()) GODWIT_TRY(meta.set(item.key, item.value));
      meta.erase("general.file_type");  // names the type that the weights had
    } else {
      GODWIT_ASSIGN(extra_, write_settings(source_.config(), source_.family(), meta));
      GODWIT_TRY(meta.set("general.name", folder_name(source_.folder()->path())));
      GODWIT_TRY(vocabulary(meta));
    }
    if (!options_.name.empty()) GODWIT_TRY(meta.set("general.name", options_.name));
    GODWIT_TRY(add_settings_tensors(extra_, writer));
    return meta.set("general.quantization_version", uint32_t{2});
  }

  Status vocabulary(GgufMetadata& meta) const {
    GODWIT_ASSIGN(Vocabulary vocabulary, load_vocabulary(source_, {}));
    GODWIT_ASSIGN(GgufVocab vocab, vocabulary.tokenizer.to_gguf_vocab());
    GODWIT_TRY(write_vocab(vocab, meta));
    std::vector<uint32_t> ends(vocabulary.end_tokens.begin(), vocabulary.end_tokens.end());
    if (!ends.empty()) GODWIT_TRY(meta.set("godwit.end_token_ids", GgufArray(ends)));
    if (!vocabulary.chat_source.empty()) GODWIT_TRY(meta.set("tokenizer.chat_template", vocabulary.chat_source));
    GODWIT_ASSIGN(const SamplingDefaults sampling, read_sampling_defaults(source_));
    return write_sampling_defaults(sampling, meta);
  }

  Result<std::vector<OutTensor>> choose() {
    std::vector<OutTensor> tensors;
    for (const std::string& name : source_.tensor_names()) {
      OutTensor t;
      t.name = name;
      GODWIT_ASSIGN(t.pieces, source_.tensor(name));
      t.shape = t.pieces[0]->shape;
      if (t.pieces.size() > 1) t.shape.insert(t.shape.begin(), static_cast<int64_t>(t.pieces.size()));
      describe(t);
      GODWIT_TRY(check(t));
      tensors.push_back(std::move(t));
    }
    return tensors;
  }

  void describe(OutTensor& t) {
    const ModelConfig& c = source_.config();
    const WeightType type = choose_weight_type(t.name, t.shape, options_);
    t.dtype = type.dtype;
    if (type.exception) report_.exceptions.emplace_back(t.name, t.dtype);
    uint64_t numbers = 1;
    for (int64_t n : t.shape) numbers *= static_cast<uint64_t>(n);
    report_.weights += numbers;
    if (source_.gguf() != nullptr) return;
    if (c.norm_plus_one && t.name.find("norm.weight") != std::string::npos) t.add = 1;
    if (source_.family().gguf_architecture == "llama" &&
        (t.name.find("attn_q.") != std::string::npos || t.name.find("attn_k.") != std::string::npos))
      t.head_rows = c.head_dim;
  }

  Status check(const OutTensor& t) const {
    for (const TensorEntry* piece : t.pieces) {
      if (piece->shape != t.pieces[0]->shape)
        return errorf(ErrorCode::kBadData, "{}: the experts of '{}' have different shapes", source_.label(), t.name);
      for (int64_t n : piece->shape)
        if (n < 1) return errorf(ErrorCode::kBadData, "{}: tensor '{}' is empty", source_.label(), piece->name);
    }
    if (t.head_rows > 0 && t.shape[0] % t.head_rows != 0)
      return errorf(ErrorCode::kBadData, "{}: tensor '{}' has {} rows, which are no whole heads of {}", source_.label(),
                    t.pieces[0]->name, t.shape[0], t.head_rows);
    return {};
  }

  // Where row `row` of the output comes from: pairs (2i, 2i + 1) were rows i and i + half of their head.
  static int64_t source_row(int64_t row, int head_rows) {
    if (head_rows == 0) return row;
    const int64_t head = row / head_rows * head_rows, i = row % head_rows;
    return head + i / 2 + (i % 2) * (head_rows / 2);
  }

  Status convert(const OutTensor& t, const GgufWriter::Sink& sink) {
    for (const TensorEntry* piece : t.pieces) {
      GODWIT_TRY(convert_piece(t, *piece, sink));
      done_bytes_ += piece->bytes.size();
      if (options_.on_progress)
        options_.on_progress(static_cast<double>(done_bytes_) /
                             static_cast<double>(std::max<uint64_t>(total_bytes_, 1)));
    }
    return {};
  }

  Status convert_piece(const OutTensor& t, const TensorEntry& piece, const GgufWriter::Sink& sink) {
    // A vector is permuted by elements, so it counts as rows of one; else rows are what the last dimension spans.
    const bool vector = piece.shape.size() == 1;
    const int64_t columns = vector ? 1 : piece.shape.back();
    int64_t rows = piece.shape[0];
    for (size_t i = 1; i + 1 < piece.shape.size(); ++i) rows *= piece.shape[i];
    const size_t in_bytes = dtype_bytes(piece.dtype, static_cast<size_t>(columns));
    const size_t out_bytes = dtype_bytes(t.dtype, static_cast<size_t>(columns));
    const int64_t batch = std::max<int64_t>(1, (int64_t{1} << 22) / std::max<int64_t>(columns, 1));
    std::vector<std::byte> out;
    for (int64_t begin = 0; begin < rows; begin += batch) {
      const int64_t end = std::min(rows, begin + batch);
      out.resize(static_cast<size_t>(end - begin) * out_bytes);
      constexpr int64_t kBlock = 64;
      pool_.parallel_for((end - begin + kBlock - 1) / kBlock, [&](int64_t block) {
        std::vector<float> values(static_cast<size_t>(columns));
        for (int64_t row = begin + block * kBlock; row < std::min(end, begin + (block + 1) * kBlock); ++row) {
          const auto from = static_cast<size_t>(source_row(row, t.head_rows));
          dequantize(piece.dtype, piece.bytes.data() + from * in_bytes, values.data(), values.size());
          for (float& value : values) value += t.add;
          quantize(t.dtype, values.data(), out.data() + static_cast<size_t>(row - begin) * out_bytes, values.size());
        }
      });
      GODWIT_TRY(sink(out));
    }
    return {};
  }

  const ModelSource& source_;
  const ConvertOptions& options_;
  ThreadPool pool_;
  std::vector<SettingsTensor> extra_;
  ConvertReport report_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace

WeightType choose_weight_type(std::string_view name, std::span<const int64_t> shape, const ConvertOptions& options) {
  if (shape.size() < 2 || name.find("ffn_gate_inp") != std::string_view::npos) return {};
  const bool edge = name == "token_embd.weight" || name == "output.weight";
  const DType wanted = edge ? options.embedding_dtype.value_or(options.dtype) : options.dtype;
  for (DType type : {wanted, DType::kQ8_0, DType::kF16})
    if (shape.back() % dtype_info(type).block_elements == 0) return {type, type != wanted};
  return {DType::kF32, true};
}

Result<ConvertReport> convert_model(const ModelSource& source, const ConvertOptions& options,
                                    const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::equivalent(source.label(), path, error))
    return errorf(ErrorCode::kInvalidArgument, "{} is the model itself; give the result another name", path.string());
  GODWIT_TRY(check_threads(options.threads));
  return Converter(source, options).run(path);
}

}  // namespace godwit
