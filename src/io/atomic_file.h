// A file that appears under its name whole or not at all.
//
// Bytes go to a temporary file in the same folder; commit() makes them durable and renames it over the target. Without
// commit the temporary file is removed and the target stays as it was. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <godwit/status.h>

namespace godwit {

class AtomicFile {
 public:
  // `expected_bytes` is reserved on the disk, so that one too full is refused before the work is done; 0 reserves none.
  static Result<AtomicFile> create(const std::filesystem::path& target, uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  AtomicFile(std::filesystem::path target, std::filesystem::path temporary, int fd);
  Status flush();
  tl::unexpected<Error> failed(std::string_view what, int error) const;

  std::filesystem::path target_, temporary_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace godwit
