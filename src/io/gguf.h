// Reading GGUF (docs/formats/gguf.md): metadata and tensors that point into the mapped file.
//
// Immutable after open; copies share the mapping. tensors() and everything reached from it stay valid as long as any
// copy of the Gguf, or the pointer that owner() gives, is alive. Nothing in the file is trusted: whatever does not fit
// together is one error that names file, tensor and reason, and memory use is bounded by a small multiple of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_metadata.h"
#include "io/tensor_entry.h"
#include <godwit/status.h>

namespace godwit {

inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint32_t kGgufDefaultAlignment = 32;

class Gguf {
 public:
  static Result<Gguf> open(const std::filesystem::path& path);
  // For bytes that are in memory already, such as the model compiled into the program. `owner` keeps them alive and
  // may be null for static storage; `label` stands for the file's name in messages.
  static Result<Gguf> parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string label);

  const std::string& label() const { return label_; }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  const GgufMetadata& metadata() const { return metadata_; }
  std::span<const TensorEntry> tensors() const { return tensors_; }  // in the file's order
  const TensorEntry* find(std::string_view name) const;              // null when absent
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Required metadata in its common types; metadata().find and get_or serve optional keys.
  Result<std::string> string(std::string_view key) const { return metadata_.get<std::string>(key); }
  Result<uint64_t> u64(std::string_view key) const { return metadata_.get<uint64_t>(key); }
  Result<int64_t> i64(std::string_view key) const { return metadata_.get<int64_t>(key); }
  Result<double> f64(std::string_view key) const { return metadata_.get<double>(key); }
  Result<bool> boolean(std::string_view key) const { return metadata_.get<bool>(key); }
  Result<std::span<const std::string>> strings(std::string_view key) const {
    return metadata_.get<std::span<const std::string>>(key);
  }
  Result<std::vector<int64_t>> integers(std::string_view key) const { return metadata_.get<std::vector<int64_t>>(key); }
  Result<std::vector<float>> floats(std::string_view key) const { return metadata_.get<std::vector<float>>(key); }

 private:
  friend class GgufReader;
  Gguf() = default;

  std::shared_ptr<const void> owner_;
  std::string label_;
  uint32_t version_ = 0;
  uint32_t alignment_ = kGgufDefaultAlignment;
  GgufMetadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::vector<uint32_t> by_name_;  // indices of tensors_ sorted by name
};

// The alignment that the metadata asks for: a power of two from 8 to 1 MiB, kGgufDefaultAlignment when it asks nothing.
Result<uint32_t> gguf_alignment(const GgufMetadata& metadata, std::string_view label);

}  // namespace godwit
