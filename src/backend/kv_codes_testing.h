// For tests: numbers as a cache of codes gives them back.
#pragma once

#include <vector>

#include "backend/kv_codes.h"

namespace godwit {

// bits 0: as they are
inline std::vector<float> as_stored(std::vector<float> numbers, int bits) {
  if (bits == 0) return numbers;
  std::vector<uint8_t> codes(numbers.size());
  const KvCodeScale scale = kv_encode(bits, numbers.data(), numbers.size(), codes.data());
  for (size_t i = 0; i < codes.size(); ++i) numbers[i] = kv_code_number(bits, codes[i], scale);
  return numbers;
}

}  // namespace godwit
