// A model as it lies on disk or in the binary: a GGUF file or a Hugging Face folder behind one face. Settings come as a
// ModelConfig, tensors by their GGUF names, whatever the file calls them. Immutable; cheap to copy (shares the
// mapping).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "io/hf_folder.h"
#include "io/tensor_entry.h"
#include "model/config.h"
#include "model/family.h"

namespace godwit {

class ModelSource {
 public:
  static Result<ModelSource> open(const std::filesystem::path& path);
  // A GGUF image in memory that lives as long as `owner`; `mapped`: it is part of a file, as constants of a program
  // are.
  static Result<ModelSource> from_memory(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                         std::string label, bool mapped = false);

  const std::string& label() const { return label_; }
  const ModelFamily& family() const { return *family_; }
  const ModelConfig& config() const { return config_; }
  const Gguf* gguf() const { return gguf_.get(); }          // null for a folder
  const HfFolder* folder() const { return folder_.get(); }  // null for a GGUF file

  std::vector<std::string> tensor_names() const;  // GGUF names of what there is, in the order of a GGUF file
  bool has(const std::string& gguf_name) const;   // also where it is there but of a type that cannot be read
  // One tensor, or, where the file keeps experts apart, that many pieces to be stacked. kNotFound names the tensor.
  Result<std::vector<const TensorEntry*>> tensor(const std::string& gguf_name) const;
  size_t weight_bytes() const;  // of all tensors in the file
  // Keeps the bytes of every TensorEntry alive.
  std::shared_ptr<const void> owner() const;
  bool mapped() const { return mapped_; }  // from files, whose pages can be let go (io/mapped_file.h)

 private:
  ModelSource() = default;
  Status configure(const ConfigReader& reader);
  Result<const TensorEntry*> find(const std::string& file_name) const;                 // null: not there
  Result<std::vector<const TensorEntry*>> pieces(const std::string& gguf_name) const;  // empty: not there

  std::string label_;
  bool mapped_ = false;
  std::shared_ptr<const Gguf> gguf_;
  std::shared_ptr<const HfFolder> folder_;
  const ModelFamily* family_ = nullptr;
  ModelConfig config_;
  std::string hf_prefix_;  // "" or what multimodal checkpoints put before the text model's names
};

// The Hugging Face name of a GGUF tensor name in a family; empty where it has none. Experts keep a "[]".
std::string hf_tensor_name(const ModelFamily& family, std::string_view gguf_name);

}  // namespace godwit
