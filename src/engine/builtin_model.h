// The model compiled into the library: a GGUF image in the read-only data of the program.
#pragma once

#include "model/source.h"

namespace godwit {

// kNotFound where the library was built without one.
Result<ModelSource> open_builtin_model();

}  // namespace godwit
