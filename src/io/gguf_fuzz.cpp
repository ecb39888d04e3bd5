// Any bytes: an error or a file whose parts hold together, and which written again is read as the same.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "base/check.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"

using namespace godwit;

namespace {

std::string rewrite(const Gguf& file) {
  GgufWriter writer;
  for (const auto& item : file.metadata().items()) GODWIT_CHECK(writer.metadata().set(item.key, item.value));
  for (const TensorEntry& entry : file.tensors())
    GODWIT_CHECK(writer.add(entry.name, entry.dtype, entry.shape, entry.bytes));
  std::string out;
  GODWIT_CHECK(writer.write([&](std::span<const std::byte> piece) -> Status {
    out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }));
  GODWIT_CHECK(out.size() == writer.file_bytes().value());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto file = Gguf::parse(nullptr, {reinterpret_cast<const std::byte*>(data), size}, "input");
  if (!file) {
    GODWIT_CHECK(!file.error().message.empty() && file.error().message.size() < 2000);
    return 0;
  }
  for (const auto& item : file->metadata().items()) {
    GODWIT_CHECK(file->metadata().value(item.key) == &item.value);
    (void)file->u64(item.key);
    (void)file->f64(item.key);
    (void)file->strings(item.key);
    (void)file->integers(item.key);
    (void)file->floats(item.key);
  }
  for (const TensorEntry& entry : file->tensors()) {
    GODWIT_CHECK(file->find(entry.name) == &entry);
    GODWIT_CHECK(tensor_bytes(entry.dtype, entry.shape).value() == entry.bytes.size());
    volatile std::byte last = entry.bytes.back();
    (void)last;
  }
  std::string once = rewrite(*file);
  auto again = Gguf::parse(nullptr, std::as_bytes(std::span(once)), "rewritten");
  GODWIT_CHECK(again.has_value(), "{}", again.error().message);
  GODWIT_CHECK(rewrite(*again) == once);
  return 0;
}
