// A text that needs no data: random tokens, the same again and again. Who predicts the copies has to look them up.
#pragma once

#include <vector>

#include <godwit/engine.h>

namespace godwit {

// [tokens * copies]; no token ends a text. The same for the same seed.
std::vector<TokenId> repeated_tokens(const Engine& engine, int tokens, int copies, uint64_t seed);

}  // namespace godwit
