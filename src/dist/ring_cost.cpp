#include "dist/ring_cost.h"

namespace godwit::dist {

std::string_view ring_mode_name(RingMode mode) {
  switch (mode) {
    case RingMode::kPassKv:
      return "pass-kv";
    case RingMode::kPassQ:
      return "pass-q";
    case RingMode::kAllGather:
      return "all-gather";
  }
  return "";
}

}  // namespace godwit::dist
