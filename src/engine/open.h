// Opening an engine on a given back-end; Engine::open() takes the CPU's.
#pragma once

#include "backend/backend.h"
#include <godwit/engine.h>

namespace godwit {

// `options.threads` and `options.simd` are not looked at: they made the back-end.
Result<Engine> open_engine(const EngineOptions& options, std::unique_ptr<Backend> backend);

}  // namespace godwit
