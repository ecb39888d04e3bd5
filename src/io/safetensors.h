// Reading safetensors (docs/formats/safetensors.md): one file, or a folder of shards with their index.
//
// Immutable after open; copies share the mappings. Entries stay valid as long as any copy, or the pointer that owner()
// gives, is alive. Tensors of types that Godwit has no use for (64-bit and 8-bit integers, FP8, …) do not keep a file
// from opening: they are left out of tensors(), listed in unreadable(), and asking for one by name is an error, so that
// a weight is never taken for missing when it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tensor_entry.h"
#include <godwit/status.h>

namespace godwit {

class Safetensors {
 public:
  struct Unreadable {
    std::string name;
    std::string dtype;  // as the file spells it: "F8_E4M3"
  };

  // A .safetensors file, or a folder with model.safetensors or model.safetensors.index.json.
  static Result<Safetensors> open(const std::filesystem::path& path);
  // For bytes in memory; `owner` keeps them alive, `label` stands for the file's name in messages.
  static Result<Safetensors> parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                   std::string label);

  const std::string& label() const { return label_; }
  std::span<const TensorEntry> tensors() const { return tensors_; }  // sorted by name
  std::span<const Unreadable> unreadable() const { return unreadable_; }
  // Null when there is no such tensor; kUnsupported when there is, in a type that cannot be read.
  Result<const TensorEntry*> find(std::string_view name) const;
  // "__metadata__" of the file; of several shards the first to have a key counts.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  Safetensors() = default;
  static Result<Safetensors> open_file(const std::filesystem::path& path);
  static Result<Safetensors> open_shards(const std::filesystem::path& index_path);

  std::shared_ptr<const void> owner_;
  std::string label_;
  std::vector<TensorEntry> tensors_;
  std::vector<Unreadable> unreadable_;  // sorted by name
  std::map<std::string, std::string> metadata_;
};

// model.safetensors.index.json: which shard holds a tensor.
struct ShardIndex {
  std::vector<std::string> files;                           // plain names inside the folder, each once
  std::vector<std::pair<std::string, uint32_t>> tensor_in;  // tensor name, index into files; sorted by name
};
Result<ShardIndex> parse_shard_index(std::string_view text, std::string_view label);

}  // namespace godwit
