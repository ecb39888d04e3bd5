#include "kv/policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace godwit {

Result<NamedKvPolicy> make_kv_policy(std::string_view spec, const KvShape& shape) {
  GODWIT_ASSIGN(ChosenMethod<KvPolicyRow> chosen, choose_method("KV policy", all_kv_policies(), spec));
  GODWIT_ASSIGN(std::shared_ptr<const KvPolicy> policy, chosen.row->make(chosen.args, shape));
  return NamedKvPolicy{chosen.row, std::move(policy)};
}

void protect(const KvHeadView& head, size_t sinks, size_t recent, std::span<float> scores) {
  const size_t slots = head.slots();
  for (size_t i = 0; i < slots && head.positions[i] < static_cast<int32_t>(sinks); ++i) scores[i] = kKeepSlot;
  for (size_t i = slots - std::min(recent, slots); i < slots; ++i) scores[i] = kKeepSlot;
}

float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 16;  // sums that do not wait for one another
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (float part : sums) sum += part;
  return sum;
}

float norm(std::span<const float> x) {
  return std::sqrt(dot(x, x));
}

float cosine(std::span<const float> a, std::span<const float> b) {
  return dot(a, b) / std::max(norm(a) * norm(b), 1e-20F);
}

void pool_votes(std::span<const float> votes, int kernel, bool max, std::span<float> pooled) {
  const auto reach = static_cast<size_t>(kernel / 2);
  for (size_t i = 0; i < votes.size(); ++i) {
    const auto near =
        votes.subspan(i - std::min(i, reach), std::min(i, reach) + 1 + std::min(votes.size() - 1 - i, reach));
    pooled[i] = max ? *std::max_element(near.begin(), near.end())
                    : std::accumulate(near.begin(), near.end(), 0.0F) / static_cast<float>(kernel);
  }
}

}  // namespace godwit
