#include <limits>

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

std::string file_of(std::string_view header, size_t data_bytes) {
  return Bytes().u64(header.size()).text(header).fill(data_bytes);
}

std::string tensor(std::string_view body, size_t data_bytes = 16) {
  return file_of(fmt::format(R"({{"w":{{{}}}}})", body), data_bytes);
}

struct Case {
  const char* what;
  std::string bytes;
  ErrorCode code;
  const char* mention;
};

void run(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    auto file = parse_copy<Safetensors>(c.bytes, "evil.safetensors");
    expect_error(file, c.code, c.mention, c.what);
    if (!file) {
      EXPECT_TRUE(file.error().message.starts_with("evil.safetensors: ")) << file.error().message;
    }
  }
}

constexpr auto kBad = ErrorCode::kBadData;

TEST(SafetensorsHostile, Header) {
  run({
      {"empty", "", kBad, "too short"},
      {"seven bytes", "1234567", kBad, "too short"},
      {"length 2^63", Bytes().u64(uint64_t{1} << 63).text("{}"), kBad, "header of 9223372036854775808 bytes"},
      {"length 2^64-1", Bytes().u64(std::numeric_limits<uint64_t>::max()), kBad, "header of"},
      {"length past the end", Bytes().u64(3).text("{}"), kBad, "truncated: it ends inside the header of 3 bytes"},
      {"length 0", Bytes().u64(0).text("{}"), kBad, "not a JSON object"},
      {"an array", file_of("[]", 0), kBad, "not a JSON object"},
      {"leading space", file_of(" {}", 0), kBad, "not a JSON object"},
      {"broken JSON", file_of("{", 0), kBad, "not valid JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", 0), kBad, "not valid JSON"},
      {"NUL hides the rest", file_of(std::string_view("{}\0{}", 5), 0), kBad, "NUL byte"},
      {"bomb", file_of("{\"a\":" + std::string(100000, '['), 0), ErrorCode::kExhausted, "nested deeper"},
      {"name twice",
       file_of(
           R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
           16),
       kBad, "'w' appears twice"},
      {"metadata not strings", file_of(R"({"__metadata__":{"a":1}})", 0), kBad, "key 'a', which is not a string"},
      {"metadata no object", file_of(R"({"__metadata__":"a"})", 0), kBad, "'__metadata__' is not an object"},
      {"data of no tensor", file_of("{}", 8), kBad, "the last 8 bytes of the file belong to no tensor"},
      {"empty name", file_of(R"({"":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), kBad, "empty name"},
      {"control in name", file_of(R"({"a\u001b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), kBad,
       "'a\\x1b' has a control character"},
  });
  EXPECT_TRUE(parse_copy<Safetensors>(file_of("{}", 0)));
  EXPECT_TRUE(parse_copy<Safetensors>(file_of("{}      ", 0)));
}

TEST(SafetensorsHostile, Tensors) {
  run({
      {"no object", file_of(R"({"w":1})", 0), kBad, "tensor 'w': expected a JSON object"},
      {"no dtype", tensor(R"("shape":[4],"data_offsets":[0,16])"), kBad, "tensor 'w': the key 'dtype' is missing"},
      {"no shape", tensor(R"("dtype":"F32","data_offsets":[0,16])"), kBad, "'shape' is missing"},
      {"no offsets", tensor(R"("dtype":"F32","shape":[4])"), kBad, "'data_offsets' is missing"},
      {"dtype a number", tensor(R"("dtype":1,"shape":[4],"data_offsets":[0,16])"), kBad, "'dtype' should be a string"},
      {"fractional shape", tensor(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"), kBad, "'shape' should be"},
      {"negative shape", tensor(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), kBad, "negative dimension"},
      {"rank 9", tensor(R"("dtype":"F32","shape":[4,1,1,1,1,1,1,1,1],"data_offsets":[0,16])"), kBad, "9 dimensions"},
      {"product overflows", tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), kBad,
       "more elements"},
      {"product overflows, unread type", tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       kBad, "more elements"},
      {"overflow hidden by 0", tensor(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), kBad,
       "more elements"},
      {"2^63", tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16])"), kBad,
       "'shape' should be"},
      {"three offsets", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,8,16])"), kBad,
       "data_offsets [0, 8, 16]"},
      {"no offsets in list", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[])"), kBad, "data_offsets []"},
      {"begin > end", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), kBad, "data_offsets [16, 0]"},
      {"negative offset", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[-16,0])"), kBad, "data_offsets [-16, 0]"},
      {"past the end", tensor(R"("dtype":"F32","shape":[5],"data_offsets":[0,20])"), kBad, "ends at byte 20 of 16"},
      {"far past the end",
       tensor(R"("dtype":"F32","shape":[4],"data_offsets":[9223372036854775791,9223372036854775807])"), kBad,
       "ends at byte"},
      {"size against shape", tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])"), kBad,
       "tensor 'w' of F32 [3] takes 12 bytes, but has 16"},
      {"size of an unread type", tensor(R"("dtype":"I64","shape":[3],"data_offsets":[0,16])"), kBad,
       "tensor 'w' of I64 [3] takes 24 bytes, but has 16"},
      {"gap before", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])"), kBad, "8 bytes before tensor 'w'"},
      {"gap after", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), kBad, "last 8 bytes"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
           16),
       kBad, "tensors 'a' and 'b' overlap"},
      {"same place",
       file_of(
           R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
           16),
       kBad, "overlap"},
  });
  EXPECT_TRUE(parse_copy<Safetensors>(tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")));
  EXPECT_TRUE(parse_copy<Safetensors>(tensor(R"("dtype":"F4","shape":[32],"data_offsets":[0,16])")));
  auto future = parse_copy<Safetensors>(tensor(R"("dtype":"Q\u001b1","shape":[3],"data_offsets":[0,16])"));
  ASSERT_TRUE(future);
  expect_error(future->find("w"), ErrorCode::kUnsupported, "unsupported type Q\\x1b1");
}

TEST(SafetensorsHostile, EveryTruncationIsAnError) {
  const std::string whole = read_file(data_path("types.safetensors"));
  ASSERT_TRUE(parse_copy<Safetensors>(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_copy<Safetensors>(std::string_view(whole).substr(0, size))) << size;
  EXPECT_FALSE(parse_copy<Safetensors>(whole + "x"));
}

TEST(SafetensorsHostile, FlippedBytesNeverCrash) {
  const std::string whole = read_file(data_path("types.safetensors"));
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int flip : {0x01, 0x02, 0x10, 0x20, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      auto file = parse_copy<Safetensors>(bytes);
      if (!file)
        ++refused;
      else
        for (const TensorEntry& entry : file->tensors()) (void)fnv1a(entry.bytes);
    }
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace godwit
