// The parts of fill_attention that are the same on every target: they move bytes or touch each number once, and memory
// bounds them. Thread-safe as operations are: one at a time per Context.
#pragma once

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

void kv_write(Context& context, const KvWriteArgs& args);
void merge_partials(Context& context, const AttnPartial& into, const AttnPartial& from);

}  // namespace godwit::cpu
