// Kernels that read pages of a PageForm as fp32, for attention that is not compiled for Highway's targets.
#pragma once

#include "backend/page_form.h"

namespace godwit::cpu {

struct FormReaders {
  // K as [head_dim, page_tokens].
  void (*keys)(const PageForm& form, const std::byte* page, float* to);
  // V of the first `tokens` slots as [tokens, width]; columns past head_dim become 0.
  void (*values)(const PageForm& form, const std::byte* page, size_t tokens, size_t width, float* to);
};

// Of the target that Highway dispatches to at the time of the call.
FormReaders best_form_readers();

}  // namespace godwit::cpu
