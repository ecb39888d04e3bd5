// How much each KV head needs the whole text: a side file that is made for one model (docs/formats/companions.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kv/sequence.h"

namespace godwit {

struct HeadGates {
  size_t sinks = 0, recent = 0;            // what a head that does not need it keeps
  std::vector<std::vector<double>> gates;  // [layers][kv_heads], from 0 to 1: the higher, the more it does

  double at(int layer, int head) const { return gates[static_cast<size_t>(layer)][static_cast<size_t>(head)]; }

  // `policy` names who wants them, in errors.
  static Result<HeadGates> read(std::string_view policy, const std::string& path, const KvShape& shape);
};

}  // namespace godwit
