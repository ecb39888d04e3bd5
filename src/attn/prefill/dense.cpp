#include "attn/dense.h"

namespace godwit {

extern const AttentionPlannerRow prefill_planner_dense = kDensePlanner;

}  // namespace godwit
