#include "eval/repeats.h"

#include <algorithm>
#include <random>

namespace godwit {

std::vector<TokenId> repeated_tokens(const Engine& engine, int tokens, int copies, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> period;
  const auto vocab = static_cast<uint64_t>(engine.info().vocab_size);
  const auto ends = engine.end_tokens();
  while (period.size() < static_cast<size_t>(tokens)) {
    const auto token = static_cast<TokenId>(random() % vocab);
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) period.push_back(token);
  }
  std::vector<TokenId> all;
  for (int i = 0; i < copies; ++i) all.insert(all.end(), period.begin(), period.end());
  return all;
}

}  // namespace godwit
