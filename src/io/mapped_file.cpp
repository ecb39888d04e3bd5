#include "io/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/result.h"

namespace godwit {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  // Without O_NONBLOCK a named pipe would wait for a writer that may never come.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return errorf(ErrorCode::kNotFound, "{}: no such file", name);
    return errorf(ErrorCode::kIo, "{}: cannot open for reading: {}", name, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return errorf(ErrorCode::kIo, "{}: cannot examine: {}", name, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return errorf(ErrorCode::kInvalidArgument, "{}: is a folder, not a file", name);
  if (!S_ISREG(info.st_mode)) return errorf(ErrorCode::kInvalidArgument, "{}: is not a regular file", name);
  if (info.st_size <= 0) return errorf(ErrorCode::kBadData, "{}: the file is empty", name);

  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED)
    return errorf(ErrorCode::kIo, "{}: cannot map {} bytes: {}", name, size, std::strerror(errno));
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<const std::byte*>(address), size}));
}

void MappedFile::let_go(std::span<const std::byte> mapped) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data()), end = begin + mapped.size();
  const uintptr_t first = (begin + page - 1) / page * page,
                  last = end / page * page;  // whole pages: others may be in use
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace godwit
