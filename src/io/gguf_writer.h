// Writing GGUF version 3.
//
// Metadata and the list of tensors are gathered first; write() then streams the data, so a model larger than memory
// passes through. The file appears under its name only when it is complete. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/gguf_metadata.h"
#include "tensor/dtype.h"
#include <godwit/status.h>

namespace godwit {

class GgufWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;
  // Called once during write(): hands the tensor's bytes to the sink in order, in pieces of any size.
  using Source = std::function<Status(const Sink&)>;

  // A "general.alignment" of type u32 set here is honoured.
  GgufMetadata& metadata() { return metadata_; }
  const GgufMetadata& metadata() const { return metadata_; }

  // Shape row-major, outermost first, 1 to 4 dimensions, none of them 0. `bytes` must stay valid until write() is done.
  Status add(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes);
  Status add(std::string name, DType dtype, std::vector<int64_t> shape, Source source);

  // Size of the file that write() would make now.
  Result<uint64_t> file_bytes() const;
  // A failure of a source or of the disk leaves no file, and an older file of that name as it was.
  Status write(const std::filesystem::path& path) const;
  // The same bytes to anything else.
  Status write(const Sink& sink) const;

 private:
  struct Pending {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    size_t bytes;
    Source source;
  };
  Result<std::string> header() const;  // everything up to the tensor data, padding included

  GgufMetadata metadata_{"GGUF to be written"};
  std::vector<Pending> tensors_;
  std::unordered_set<std::string> names_;
};

}  // namespace godwit
