// A file mapped into memory for reading.
//
// Immutable and safe to share between threads; the shared_ptr keeps the mapping alive, and whoever holds a span of its
// bytes holds the pointer too. The file must not be shortened while it is mapped: the operating system answers a read
// past the new end with SIGBUS. Replacing it by rename, as our own writer does, is safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <godwit/status.h>

namespace godwit {

class MappedFile {
 public:
  // kNotFound: no such file. kInvalidArgument: a folder or a device. kBadData: empty. kIo: the system refused.
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Takes pages of a mapped file out of this process's memory; whoever reads them again has the system fetch them.
  static void let_go(std::span<const std::byte> mapped);
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace godwit
