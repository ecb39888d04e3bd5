#pragma once

#include "model/config.h"

namespace godwit {

// How many tokens attended to cost as much as the matrix products of one: by multiplications.
double attention_tokens(const ModelConfig& config);

}  // namespace godwit
