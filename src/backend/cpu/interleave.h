// Memory that threads on several nodes read.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace godwit::cpu {

// Deals the pages of a buffer that nobody has written yet to these nodes in turn. Nothing happens without nodes, to
// buffers of less than a large page, or where the system has no such nodes or does not let this process choose: memory
// is then where it is touched first. True: the pages are dealt.
bool interleave(const Buffer& buffer, const std::vector<int>& nodes);

}  // namespace godwit::cpu
