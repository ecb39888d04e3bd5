#include "attn/dense.h"

namespace godwit {

extern const AttentionPlannerRow decode_planner_dense = kDensePlanner;

}  // namespace godwit
