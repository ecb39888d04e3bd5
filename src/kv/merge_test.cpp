// Merging is exact where what is merged is equal, and a mean where it is not; nothing but counts and weights decides.
#include "kv/merge.h"

#include <cmath>
#include <numeric>

#include "kv/toy_model.h"

namespace godwit::kv_test {
namespace {

constexpr size_t kDim = 16;

// A head's slots with made-up numbers.
struct Slots {
  std::vector<int32_t> positions, queries;
  std::vector<float> keys, values, counts, mass;

  void add(uint64_t what, float count = 1, float attention = 1) {
    positions.push_back(static_cast<int32_t>(positions.size()));
    for (size_t d = 0; d < kDim; ++d) {
      keys.push_back(noise(1, what, 0, d));
      values.push_back(noise(2, what, 0, d));
    }
    counts.push_back(count);
    mass.push_back(attention);
  }
  KvHeadView view(size_t budget) const {
    KvHeadView view;
    view.next_position = static_cast<int32_t>(positions.size());
    view.budget = budget;
    view.positions = positions;
    view.query_positions = queries;
    view.keys = keys, view.values = values, view.counts = counts, view.mass = mass;
    view.head_dim = kDim;
    return view;
  }
};

struct Attended {
  std::vector<double> out = std::vector<double>(kDim, 0);
  double log_sum = 0;
};

Attended attend(uint64_t query, std::span<const float> keys, std::span<const float> values,
                std::span<const double> biases) {
  Attended result;
  double sum = 0;
  for (size_t i = 0; i < biases.size(); ++i) {
    double score = biases[i];
    for (size_t d = 0; d < kDim; ++d) score += static_cast<double>(noise(3, query, 0, d)) * keys[i * kDim + d];
    sum += std::exp(score);
    for (size_t d = 0; d < kDim; ++d) result.out[d] += std::exp(score) * static_cast<double>(values[i * kDim + d]);
  }
  for (double& x : result.out) x /= sum;
  result.log_sum = std::log(sum);
  return result;
}

std::vector<double> logs(std::span<const float> counts) {
  std::vector<double> result;
  for (float count : counts) result.push_back(std::log(static_cast<double>(count)));
  return result;
}

// The slots after a policy of the given spec held them to `budget`.
Slots compressed(const std::string& spec, const Slots& slots, size_t budget) {
  const auto method = make_kv_policy(spec, {.layers = 1, .kv_heads = 1});
  EXPECT_TRUE(method.has_value()) << spec;
  const KvHeadView view = slots.view(budget);
  ScoredHead scored{slots.positions, std::vector<float>(view.slots())};
  method->policy->score(view, scored.scores);
  const std::vector<double> demands = {1};
  const auto kept =
      select_slots({&scored, 1}, {.layers = 1, .kv_heads = 1}, {.slots_per_head = budget, .demands = demands})[0];
  const MergedSlots merged = merge_slots(view, kept, method->policy->merge(view, kept));
  Slots result;
  for (uint32_t slot : kept) {
    result.positions.push_back(slots.positions[slot]);
    result.keys.insert(result.keys.end(), view.key(slot).begin(), view.key(slot).end());
    result.values.insert(result.values.end(), view.value(slot).begin(), view.value(slot).end());
    result.counts.push_back(slots.counts[slot]);
  }
  for (size_t i = 0; i < merged.slots.size(); ++i) {
    const size_t at = merged.slots[i];
    result.counts[at] = std::exp(merged.biases[i]);
    for (size_t d = 0; d < kDim; ++d) {
      result.keys[at * kDim + d] = merged.keys[i * kDim + d];
      result.values[at * kDim + d] = merged.values[i * kDim + d];
    }
  }
  return result;
}

const char* const kMergers[] = {"chelsea:sinks=0,recent=1,chunk=8", "d2o:recent=0,tau=0.99",
                                "kvmerger:window=1,heavy=0,epsilon=0.99"};

TEST(Merge, EqualEntriesAreMergedExactly) {
  for (const char* spec : kMergers) {
    Slots slots;
    for (uint64_t i = 0; i < 40; ++i)
      for (int copy = 0; copy < 2; ++copy) slots.add(i, 1, copy == 0 ? 2 : 1);
    slots.queries = {79};
    const Slots half = compressed(spec, slots, 41);
    EXPECT_LE(half.counts.size(), 41U) << spec;
    EXPECT_NEAR(std::accumulate(half.counts.begin(), half.counts.end(), 0.0), 80, 1e-3) << spec << ": sizes sum to n";
    for (uint64_t query = 0; query < 5; ++query) {
      const Attended want = attend(query, slots.keys, slots.values, logs(slots.counts));
      const Attended got = attend(query, half.keys, half.values, logs(half.counts));
      EXPECT_NEAR(got.log_sum, want.log_sum, 1e-5) << spec;
      for (size_t d = 0; d < kDim; ++d) EXPECT_NEAR(got.out[d], want.out[d], 1e-5) << spec;
      // Without counts half of the mass is gone.
      const std::vector<double> no_counts(half.counts.size(), 0);
      EXPECT_NEAR(want.log_sum - attend(query, half.keys, half.values, no_counts).log_sum, std::log(2), 0.1) << spec;
    }
  }
}

TEST(Merge, CountsAddUpOverLooks) {
  for (const char* spec : kMergers) {
    Slots slots;
    for (int i = 0; i < 33; ++i) slots.add(7, 1 + static_cast<float>(i % 3));
    slots.queries = {32};
    const double tokens = std::accumulate(slots.counts.begin(), slots.counts.end(), 0.0);
    Slots left = compressed(spec, slots, 9);
    left.mass.assign(left.counts.size(), 1);
    left.queries = slots.queries;
    left = compressed(spec, left, 3);
    EXPECT_EQ(left.counts.size(), 3U) << spec;
    EXPECT_NEAR(std::accumulate(left.counts.begin(), left.counts.end(), 0.0), tokens, 1e-3) << spec;
  }
}

TEST(Merge, AMergedEntryLiesBetweenItsParts) {
  for (const char* spec : {"chelsea:sinks=0,recent=1", "d2o:recent=0,tau=-1", "kvmerger:window=1,heavy=0,epsilon=-1"}) {
    Slots slots;
    for (uint64_t i = 0; i < 50; ++i) slots.add(i, 1, noise(4, i, 0, 0) + 1);
    slots.queries = {49};
    const Slots left = compressed(spec, slots, 10);
    EXPECT_EQ(left.counts.size(), 10U);
    EXPECT_NEAR(std::accumulate(left.counts.begin(), left.counts.end(), 0.0), 50, 1e-3) << spec;
    for (size_t d = 0; d < kDim; ++d) {
      float low = 2, high = -2;
      for (size_t i = 0; i < 50; ++i) {
        low = std::min(low, slots.keys[i * kDim + d]);
        high = std::max(high, slots.keys[i * kDim + d]);
      }
      for (size_t i = 0; i < 10; ++i) {
        EXPECT_GE(left.keys[i * kDim + d], low - 1e-6F) << spec;
        EXPECT_LE(left.keys[i * kDim + d], high + 1e-6F) << spec;
      }
    }
  }
}

TEST(Merge, D2oThatMergesNothingIsH2o) {
  Slots slots;
  for (uint64_t i = 0; i < 60; ++i) slots.add(i, 1, noise(5, i, 0, 0) + 1);
  const Slots left = compressed("d2o:tau=2", slots, 20), drops = compressed("h2o", slots, 20);
  EXPECT_EQ(left.positions, drops.positions);
  EXPECT_EQ(left.keys, drops.keys);
  EXPECT_EQ(left.counts, std::vector<float>(20, 1));
}

TEST(Merge, RunsAreOfNeighbours) {
  Slots slots;  // a a a b a a: the second run of a is a run of its own
  for (uint64_t what : {1, 1, 1, 2, 1, 1, 3}) slots.add(what);
  slots.queries = {6};
  const Slots left = compressed("kvmerger:window=1,heavy=0,epsilon=0.9", slots, 4);
  EXPECT_EQ(left.positions, (std::vector<int32_t>{0, 3, 4, 6}));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(left.counts[i], (std::array{3, 1, 2, 1}[i]), 1e-5);
}

// The whole path, in pages: what was merged is there after forks and further steps, and what others share is theirs.
TEST(Merge, MergedSlotsAreInThePages) {
  for (const char* spec : {"chelsea:sinks=1,recent=4", "d2o", "kvmerger:window=4,epsilon=-1"}) {
    Toy toy({.policy = spec, .budget = "40", .trigger = "prefill"});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(toy.step(50));
    Toy fork(toy);
    ASSERT_TRUE(toy.step(0, true));
    auto tokens = [](const KvSequence& sequence, int layer, int head) {
      double sum = 0;
      for (size_t i = 0; i < sequence.slots(layer, head); ++i)
        sum += std::exp(static_cast<double>(sequence.bias(layer, head, i)));
      return sum;
    };
    for (int head = 0; head < kToyShape.kv_heads; ++head) {
      EXPECT_LE(toy.sequence().slots(1, head), 40U + 6) << spec;
      EXPECT_GT(tokens(toy.sequence(), 1, head), 60) << spec;
      EXPECT_EQ(fork.sequence().slots(1, head), 150U);
      EXPECT_EQ(tokens(fork.sequence(), 1, head), 150) << "a fork's own pages are as they were";
    }
    ASSERT_TRUE(toy.step(30, true) && fork.step(30, true));
    EXPECT_TRUE(toy.sequence().check_integrity() && toy.pool().check_integrity());
  }
}

}  // namespace
}  // namespace godwit::kv_test
