#include "engine/builtin_model.h"

#ifdef GODWIT_BUILTIN_MODEL
// The assembler includes the file as it is: a C array of 30 MB would take the compiler minutes.
asm(".section .rodata\n"
    ".balign 64\n"
    "godwit_builtin_begin:\n"
    ".incbin \"" GODWIT_BUILTIN_MODEL
    "\"\n"
    "godwit_builtin_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" {
extern const std::byte godwit_builtin_begin[];
extern const std::byte godwit_builtin_end[];
}
#endif

namespace godwit {

Result<ModelSource> open_builtin_model() {
#ifdef GODWIT_BUILTIN_MODEL
  const auto bytes = static_cast<size_t>(godwit_builtin_end - godwit_builtin_begin);
  return ModelSource::from_memory(nullptr, {godwit_builtin_begin, bytes}, "built-in", true);
#else
  return errorf(ErrorCode::kNotFound, "this build has no built-in model: name one with -m");
#endif
}

}  // namespace godwit
