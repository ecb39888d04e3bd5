// Tables that a KV codec was fitted to a model with: a side file in GGUF (docs/formats/companions.md), whose tensors
// are [layers * kv_heads, ...], layer by layer.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "kv/sequence.h"

namespace godwit {

class CodecTables {
 public:
  // `codec` names who wants them, and must be whom they were made for.
  static Result<CodecTables> open(std::string_view codec, const std::string& path);

  // The tensor `name`, [tables, shape ...] in f16 or f32; finite numbers.
  Result<std::vector<float>> numbers(std::string_view name, const std::vector<int64_t>& shape) const;
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;

 private:
  explicit CodecTables(Gguf file) : file_(std::move(file)) {}

  Gguf file_;
};

struct CodecTable {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> numbers;
  DType dtype = DType::kF16;  // or kF32
};

// `settings` are what CodecTables::integer reads.
Status write_codec_tables(std::string_view codec, std::string_view model,
                          const std::vector<std::pair<std::string, uint32_t>>& settings,
                          const std::vector<CodecTable>& tables, const std::filesystem::path& path);

// Whether a format that has tables has one for each KV head of the model; `codec` is what the user wrote.
Status check_codec_tables(const KvFormat& format, const KvShape& shape, std::string_view codec);

}  // namespace godwit
