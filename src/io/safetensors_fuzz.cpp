// Any bytes as a safetensors file and as the index of shards.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "io/safetensors.h"

using namespace godwit;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (auto index = parse_shard_index({reinterpret_cast<const char*>(data), size}, "input"))
    for (const std::string& name : index->files) GODWIT_CHECK(name.find('/') == std::string::npos);

  std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  auto file = Safetensors::parse(nullptr, bytes, "input");
  if (!file) {
    GODWIT_CHECK(!file.error().message.empty() && file.error().message.size() < 2000);
    return 0;
  }
  for (const TensorEntry& entry : file->tensors()) {
    GODWIT_CHECK(file->find(entry.name).value() == &entry);
    GODWIT_CHECK(tensor_bytes(entry.dtype, entry.shape).value() == entry.bytes.size());
    if (entry.bytes.empty()) continue;
    volatile std::byte ends[] = {entry.bytes.front(), entry.bytes.back()};
    (void)ends;
  }
  for (const auto& entry : file->unreadable()) GODWIT_CHECK(!file->find(entry.name));
  return 0;
}
