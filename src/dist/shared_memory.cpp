#include "dist/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dist/whereabouts.h"

namespace godwit::dist {
namespace {

// Where memory is to be found. Plain data: it travels as it is.
struct Place {
  Whereabouts owner;
  int32_t descriptor = -1;
  uint64_t device = 0, inode = 0, bytes = 0;  // whether it is what was meant
};

// At `where`, or anywhere.
std::byte* map(std::byte* where, int descriptor, size_t bytes) {
  void* at = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where != nullptr ? MAP_FIXED : 0), descriptor, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

std::shared_ptr<std::byte> unmapped_later(std::byte* at, size_t bytes) {
  return {at, [bytes](std::byte* memory) { munmap(memory, bytes); }};
}

bool attach(const Place& place, std::byte* where) {
  if (place.bytes == 0 || !is_within_reach(place.owner)) return false;
  const std::string path = fmt::format("/proc/{}/fd/{}", place.owner.process, place.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct stat found {};
  const bool mapped = fstat(descriptor, &found) == 0 && found.st_dev == place.device && found.st_ino == place.inode &&
                      static_cast<uint64_t>(found.st_size) == place.bytes &&
                      map(where, descriptor, place.bytes) != nullptr;
  close(descriptor);
  return mapped;
}

}  // namespace

void SharedMemory::give_back() const {
  // What others have mapped stays mapped, and reads as zeros.
  (void)fallocate(*descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_));
}

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  const int descriptor = memfd_create("godwit-kv", MFD_CLOEXEC);
  if (descriptor < 0) return errorf(ErrorCode::kExhausted, "no shared memory: {}", std::strerror(errno));
  SharedMemory made;
  made.bytes_ = bytes;
  made.descriptor_ = std::shared_ptr<const int>(new int(descriptor), [](const int* which) {
    close(*which);
    delete which;
  });
  std::byte* at = nullptr;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) at = map(nullptr, descriptor, bytes);
  if (at == nullptr)
    return errorf(ErrorCode::kExhausted, "no shared memory of {} bytes: {}", bytes, std::strerror(errno));
  made.memory_ = unmapped_later(at, bytes);
  return made;
}

bool SharedView::everybody_reads_all() const {
  for (size_t owner = 0; owner < readers.size(); ++owner)
    for (size_t reader = 0; reader < readers.size(); ++reader)
      if (owner != reader && readers[owner][reader] == 0) return false;
  return readers.size() > 1;
}

Result<SharedView> share(Transport& transport, const SharedMemory* own, size_t unit_bytes) {
  Place place;
  struct stat found {};
  if (own != nullptr && fstat(own->descriptor(), &found) == 0) {
    place.owner = own_whereabouts();
    place.descriptor = own->descriptor();
    place.device = found.st_dev;
    place.inode = found.st_ino;
    place.bytes = own->bytes();
  }
  const auto ranks = static_cast<size_t>(transport.size());
  std::vector<std::byte> all;
  GODWIT_TRY(transport.all_gather(FrameKind::kReply, std::as_bytes(std::span(&place, 1)), all));
  std::vector<Place> places(ranks);
  std::memcpy(places.data(), all.data(), all.size());
  SharedView view;
  for (const Place& one : places) view.stride = std::max<size_t>(view.stride, one.bytes);
  const size_t unit = std::lcm(unit_bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  view.stride = (view.stride + unit - 1) / unit * unit;
  std::vector<uint8_t> mine(ranks);
  if (own != nullptr && view.stride > 0) {
    // One range of addresses, so that a page has one number among all ranks' pages.
    void* range = mmap(nullptr, view.stride * ranks, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
      return errorf(ErrorCode::kExhausted, "no addresses for {} bytes that ranks share: {}", view.stride * ranks,
                    std::strerror(errno));
    auto* base = static_cast<std::byte*>(range);
    view.base = unmapped_later(base, view.stride * ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::byte* where = base + rank * view.stride;
      if (static_cast<int>(rank) != transport.rank())
        mine[rank] = attach(places[rank], where) ? 1 : 0;
      else if (map(where, own->descriptor(), own->bytes()) == nullptr)
        return errorf(ErrorCode::kExhausted, "shared memory cannot be mapped twice: {}", std::strerror(errno));
    }
  }
  // An owner must know who reads, and rank 0 all of it, to predict.
  GODWIT_TRY(transport.all_gather(FrameKind::kReply, std::as_bytes(std::span(mine)), all));
  view.readers.assign(ranks, std::vector<uint8_t>(ranks));
  for (size_t reader = 0; reader < ranks; ++reader)
    for (size_t owner = 0; owner < ranks; ++owner)
      view.readers[owner][reader] = static_cast<uint8_t>(all[reader * ranks + owner]);
  return view;
}

}  // namespace godwit::dist
