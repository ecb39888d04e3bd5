#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "io/gguf.h"
#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

constexpr uint32_t kF32 = 0, kQ4_0 = 2, kString = 8, kArray = 9;
constexpr uint64_t kHuge = uint64_t{1} << 60;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

Bytes header(uint64_t tensors, uint64_t items) {
  return Bytes().text("GGUF").u32(3).u64(tensors).u64(items);
}

struct TensorRecord {
  std::string name = "w";
  std::vector<uint64_t> dims = {8};
  uint32_t type = kF32;
  uint64_t offset = 0;
};

std::string file_of(const std::vector<TensorRecord>& tensors, size_t data_bytes) {
  Bytes out = header(tensors.size(), 0);
  for (const TensorRecord& tensor : tensors) {
    out.string(tensor.name).u32(static_cast<uint32_t>(tensor.dims.size()));
    for (uint64_t dim : tensor.dims) out.u64(dim);
    out.u32(tensor.type).u64(tensor.offset);
  }
  return out.align(32).fill(data_bytes);
}

struct Case {
  const char* what;
  std::string bytes;
  ErrorCode code;
  const char* mention;
};

void run(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    auto file = parse_copy<Gguf>(c.bytes, "evil.gguf");
    expect_error(file, c.code, c.mention, c.what);
    if (!file) {
      EXPECT_TRUE(file.error().message.starts_with("evil.gguf: ")) << file.error().message;
    }
  }
}

constexpr auto kBad = ErrorCode::kBadData;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

TEST(GgufHostile, Header) {
  run({
      {"empty", "", kBad, "not a GGUF file"},
      {"other magic", Bytes().text("GGML").u32(3).fill(64), kBad, "not a GGUF file"},
      {"magic alone", "GGUF", kBad, "truncated"},
      {"version 1", Bytes().text("GGUF").u32(1).fill(64), kUnsupported, "version 1"},
      {"version 4", Bytes().text("GGUF").u32(4).fill(64), kUnsupported, "version 4"},
      {"version 0", Bytes().text("GGUF").u32(0).fill(64), kUnsupported, "version 0"},
      {"big-endian", Bytes().text("GGUF").u32(0x03000000).fill(64), kUnsupported, "big-endian"},
      {"2^60 tensors", header(kHuge, 0), kBad, "1152921504606846976 tensors"},
      {"2^64-1 tensors", header(kMax, 0).fill(100), kBad, "18446744073709551615 tensors"},
      {"2^60 keys", header(0, kHuge), kBad, "1152921504606846976 metadata keys"},
      {"more tensors than bytes", header(4, 0).fill(99), kBad, "4 tensors cannot be"},
  });
}

TEST(GgufHostile, Metadata) {
  auto key = [](std::string_view name) { return header(0, 1).string(name); };
  run({
      {"giant key", header(0, 1).u64(kMax).fill(40), kBad, "metadata key 1 of 1 has a string of 18446744073709551615"},
      {"empty key", key("").u32(4).u32(0).fill(8), kBad, "empty name"},
      {"long key", key(std::string(70000, 'k')).u32(4).u32(0), kBad, "70000 bytes"},
      {"key not UTF-8", key("a\xff").u32(4).u32(0).fill(8), kBad, "'a\\xff' has a name that is not UTF-8"},
      {"control in key", key("a\x1b[31m").u32(4).u32(0), kBad, "'a\\x1b[31m' has a control character"},
      {"unknown type", key("k").u32(13).u64(0), kUnsupported, "'k' has the unknown value type 13"},
      {"cut scalar", key("key").u32(10).u32(0), kBad, "truncated: it ends inside the metadata key 'key'"},
      {"bool of 2", key("k").u32(7).u8(2).fill(8), kBad, "bool of value 2"},
      {"giant string", key("k").u32(kString).u64(kHuge).fill(8), kBad, "'k' has a string of 1152921504606846976"},
      {"giant array", key("k").u32(kArray).u32(0).u64(kHuge), kBad, "'k' is an array of 1152921504606846976 elements"},
      {"array size overflows", key("k").u32(kArray).u32(10).u64(kMax / 8 + 2), kBad, "is an array of"},
      {"array of 2^60 strings", key("k").u32(kArray).u32(kString).u64(kHuge), kBad, "is an array of"},
      {"cut in array of strings", key("k").u32(kArray).u32(kString).u64(2).u64(0).u64(9), kBad, "string of 9 bytes"},
      {"array of arrays", key("k").u32(kArray).u32(kArray).u64(1).u32(kArray), kUnsupported, "array of arrays"},
      {"array of unknown", key("k").u32(kArray).u32(99).u64(1), kUnsupported, "unknown value type 99"},
      {"bool array of 3", key("k").u32(kArray).u32(7).u64(2).u8(1).u8(3), kBad, "bool of value 3"},
      {"key twice", header(0, 2).string("k").u32(4).u32(1).string("k").u32(4).u32(1), kBad, "'k' appears twice"},
      {"alignment 0", key("general.alignment").u32(4).u32(0), kBad, "alignment of 0"},
      {"alignment 48", key("general.alignment").u32(4).u32(48), kBad, "alignment of 48"},
      {"alignment 2^31", key("general.alignment").u32(4).u32(1u << 31), kBad, "alignment of 2147483648"},
      {"alignment of u64", key("general.alignment").u32(10).u64(32), kBad, "should be u32, but is u64"},
  });
}

TEST(GgufHostile, Tensors) {
  auto one = [](TensorRecord tensor, size_t bytes = 64) { return file_of({std::move(tensor)}, bytes); };
  run({
      {"giant name", header(1, 0).u64(kHuge).fill(64), kBad, "tensor 1 of 1 has a string"},
      {"empty name", one({.name = ""}), kBad, "empty name"},
      {"name not UTF-8", one({.name = "\xc0\x80"}), kBad, "not UTF-8"},
      {"name twice", file_of({{}, {.offset = 32}}, 64), kBad, "tensor 'w' appears twice"},
      {"rank 5", one({.dims = {1, 1, 1, 1, 1}}), kBad, "tensor 'w' has 5 dimensions"},
      {"rank 2^32-1", header(1, 0).string("w").u32(0xFFFFFFFF).fill(64), kBad, "has 4294967295 dimensions"},
      {"dimension 0", one({.dims = {0}}), kBad, "tensor 'w' has a dimension of 0"},
      {"dimension 2^63", one({.dims = {uint64_t{1} << 63}}), kBad, "has a dimension of 9223372036854775808"},
      {"product overflows to 0", one({.dims = {1ull << 32, 1ull << 32}}), kBad, "more elements than"},
      {"product overflows to small", one({.dims = {(1ull << 62) + 1, 4, 2}}), kBad, "more elements than"},
      {"bytes overflow", one({.dims = {1ull << 62}}), kBad, "more bytes than"},
      {"type 4, removed", one({.type = 4}), kUnsupported, "tensor 'w' has the unsupported type 4"},
      {"type unknown", one({.type = 1000}), kUnsupported, "unsupported type 1000"},
      {"half a block", one({.dims = {48}, .type = kQ4_0}), kBad, "rows of 48 elements are not whole q4_0 blocks of 32"},
      {"misaligned", one({.offset = 4}), kBad, "offset 4, which is not a multiple of the alignment 32"},
      {"past the end", one({.offset = 64}), kBad, "tensor 'w' of 32 bytes at offset 64 ends past the 64 bytes"},
      {"offset 2^64-32", one({.offset = kMax - 31}), kBad, "ends past"},
      {"too few bytes", one({.dims = {17}}), kBad, "of 68 bytes at offset 0 ends past the 64 bytes"},
      {"no data", one({}, 0), kBad, "ends past the 0 bytes"},
      {"overlap", file_of({{.name = "a", .dims = {16}}, {.name = "b", .offset = 32}}, 64), kBad,
       "tensors 'a' and 'b' overlap"},
      {"same place", file_of({{.name = "a"}, {.name = "b"}}, 64), kBad, "overlap"},
      {"overlap, not neighbours in the list",
       file_of({{.name = "a", .dims = {24}}, {.name = "c", .offset = 128}, {.name = "b", .offset = 64}}, 160), kBad,
       "tensors 'a' and 'b' overlap"},
  });
  EXPECT_TRUE(parse_copy<Gguf>(one({})));
  EXPECT_TRUE(parse_copy<Gguf>(file_of({{.name = "b", .offset = 32}, {.name = "a"}}, 64)));
}

TEST(GgufHostile, EveryTruncationIsAnError) {
  const std::string whole = read_file(data_path("types.gguf"));
  auto file = parse_copy<Gguf>(whole);
  ASSERT_TRUE(file);
  // The last tensor may be followed by padding, which nobody misses.
  size_t needed = 0;
  for (const TensorEntry& entry : file->tensors())
    needed =
        std::max(needed, static_cast<size_t>(entry.bytes.data() - static_cast<const std::byte*>(file->owner().get())) +
                             entry.bytes.size());
  ASSERT_GT(needed, whole.size() - 32);
  for (size_t size = 0; size < needed; ++size) {
    auto cut = parse_copy<Gguf>(std::string_view(whole).substr(0, size), "cut.gguf");
    ASSERT_FALSE(cut) << size;
    EXPECT_TRUE(cut.error().message.starts_with("cut.gguf: "));
  }
}

TEST(GgufHostile, FlippedBytesNeverCrash) {
  const std::string whole = read_file(data_path("types.gguf"));
  const size_t front = 2500;  // header, metadata and tensor records
  size_t refused = 0;
  for (size_t at = 0; at < front; ++at) {
    for (unsigned flip : {0x01u, 0x80u, 0xFFu}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ flip);
      auto file = parse_copy<Gguf>(bytes);
      if (!file) {
        ++refused;
        continue;
      }
      for (const TensorEntry& entry : file->tensors()) (void)fnv1a(entry.bytes);
    }
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace godwit
