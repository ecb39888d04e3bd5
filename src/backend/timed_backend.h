// A back-end that keeps the time of its operations.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace godwit {

struct OperationSeconds {
  double matmul = 0, attention = 0, other = 0;  // experts' products are matmul; merging partials is attention
};

// `seconds` grows with every operation and must outlive the back-end.
std::unique_ptr<Backend> make_timed_backend(std::unique_ptr<Backend> backend, OperationSeconds& seconds);

}  // namespace godwit
