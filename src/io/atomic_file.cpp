#include "io/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/result.h"

namespace godwit {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kAttempts = 1000;

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& target, uint64_t expected_bytes) {
  struct stat info {};
  // Renaming over a device or a folder would destroy it or fail only at the end.
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return errorf(ErrorCode::kInvalidArgument, "{}: exists and is not a regular file; choose another name",
                  target.string());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::filesystem::path temporary = target;
    temporary += fmt::format(".partial-{}-{}", ::getpid(), attempt);
    int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return errorf(ErrorCode::kIo, "{}: cannot create: {}", target.string(), std::strerror(errno));
    AtomicFile file(target, std::move(temporary), fd);
    // File systems that cannot reserve report a full disk when they are written to.
    if (expected_bytes > 0 && ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected_bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
      return file.failed(fmt::format("cannot reserve {} bytes", expected_bytes), errno);
    return file;
  }
  return errorf(ErrorCode::kIo, "{}: the folder is full of temporary files of earlier attempts; remove *.partial-*",
                target.string());
}

AtomicFile::AtomicFile(std::filesystem::path target, std::filesystem::path temporary, int fd)
    : target_(std::move(target)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

tl::unexpected<Error> AtomicFile::failed(std::string_view what, int error) const {
  return errorf(ErrorCode::kIo, "{}: {}: {}; nothing was written", target_.string(), what, std::strerror(error));
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    size_t take = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
    bytes = bytes.subspan(take);
    if (buffer_.size() == kBufferBytes) GODWIT_TRY(flush());
  }
  return {};
}

Status AtomicFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    ssize_t count = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("cannot write", errno);
    done += static_cast<size_t>(count);
  }
  buffer_.clear();
  return {};
}

Status AtomicFile::commit() {
  GODWIT_TRY(flush());
  if (::fsync(fd_) != 0) return failed("cannot write", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return failed("cannot rename the finished file", errno);
  ::close(std::exchange(fd_, -1));
  // The new name is durable only when the folder is; a file system that cannot do this has nothing better to offer.
  std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  if (int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    (void)::fsync(fd);
    ::close(fd);
  }
  return {};
}

}  // namespace godwit
