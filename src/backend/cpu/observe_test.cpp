// observe() and kv_read() on every SIMD target and the scalar reference, against the formula in fp64.
#include <algorithm>
#include <cmath>

#include "backend/cpu/attention_testing.h"

namespace godwit::testing {
namespace {

struct Seen {
  std::vector<float> mass, square;
  std::vector<int32_t> uses, first, last, gap;
  bool operator==(const Seen&) const = default;
};

Seen observe(Backend& backend, const TestCache& cache, Queries queries, const AttentionPlan& plan, Answer answer,
             float use_factor, std::span<int32_t> elsewhere = {}) {
  const auto pages = static_cast<int64_t>(plan.pages.size()), tokens = int64_t{cache.format().page_tokens};
  const auto numbers = static_cast<size_t>(pages * tokens);
  // What is not written stays as no result can be.
  Seen seen{std::vector<float>(numbers, -7),   std::vector<float>(numbers, -7),   std::vector<int32_t>(numbers, -7),
            std::vector<int32_t>(numbers, -7), std::vector<int32_t>(numbers, -7), std::vector<int32_t>(numbers, -7)};
  ObserveArgs args;
  Answer blank;
  args.attention = attention_args(cache, queries, plan, blank);
  args.attention.partial = partial_of(queries, answer);
  args.use_factor = use_factor;
  if (!elsewhere.empty())
    args.seen_elsewhere =
        Tensor(elsewhere.data(), DType::kI32, {queries.rows, static_cast<int64_t>(cache.slots.size())});
  auto floats = [&](std::vector<float>& v) { return Tensor(v.data(), DType::kF32, {pages, tokens}); };
  auto ints = [&](std::vector<int32_t>& v) { return Tensor(v.data(), DType::kI32, {pages, tokens}); };
  args.mass = floats(seen.mass);
  args.square = floats(seen.square);
  args.uses = ints(seen.uses);
  args.first_use = ints(seen.first);
  args.last_use = ints(seen.last);
  args.longest_gap = ints(seen.gap);
  backend.observe(args);
  return seen;
}

// The weights [rows][slots] of one KV head, -1 where a row does not see a slot.
std::vector<std::vector<double>> weights_fp64(const TestCache& cache, const Queries& queries, const Answer& answer,
                                              size_t kv_head) {
  const auto dim = static_cast<size_t>(queries.head_dim), heads = static_cast<size_t>(queries.q_heads);
  const size_t group = heads / cache.slots.size();
  std::vector<std::vector<double>> weights;
  for (size_t row = 0; row < static_cast<size_t>(queries.rows); ++row) {
    std::vector<double>& line = weights.emplace_back();
    for (const TestCache::Slot& slot : cache.slots[kv_head]) {
      const int32_t ahead = queries.positions[row] - slot.position;
      if (ahead < 0 || (queries.window > 0 && ahead >= queries.window)) {
        line.push_back(-1);
        continue;
      }
      double sum = 0;
      for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d)
          score += static_cast<double>(queries.q[(row * heads + head) * dim + d]) * slot.k[d];
        score *= static_cast<double>(queries.scale);
        if (queries.softcap > 0) score = queries.softcap * std::tanh(score / queries.softcap);
        sum += std::exp(score + slot.bias - static_cast<double>(answer.lse[row * heads + head]));
      }
      line.push_back(sum / static_cast<double>(group));
    }
  }
  return weights;
}

class ObserveTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Rows see `elsewhere` slots, and more the later they are, beyond those of the cache.
  void compare(const CacheOptions& options, int rows, int q_heads, int32_t window = 0, float softcap = 0,
               int32_t elsewhere = 0) {
    SCOPED_TRACE(fmt::format("{} tokens {} rows {} heads {}/{} window {} softcap {} explicit {}",
                             format_name(options.format), options.tokens, rows, q_heads, options.kv_heads, window,
                             softcap, options.explicit_slots));
    const TestCache cache(*backend_, options);
    Queries queries(cache, rows, q_heads);
    queries.window = window;
    queries.softcap = softcap;
    const Answer answer = attend_fp64(cache, queries);
    const AttentionPlan plan = cache.plan(rows);
    constexpr float kFactor = 1.1f;
    std::vector<int32_t> beyond(elsewhere > 0 ? static_cast<size_t>(rows * options.kv_heads) : 0);
    for (size_t i = 0; i < beyond.size(); ++i) beyond[i] = elsewhere + static_cast<int32_t>(i);
    const Seen seen = observe(*backend_, cache, queries, plan, answer, kFactor, beyond);
    const auto page_tokens = static_cast<size_t>(cache.format().page_tokens);
    for (const AttentionTile& tile : plan.tiles) {
      const auto kv_head = static_cast<size_t>(tile.kv_head);
      const auto weights = weights_fp64(cache, queries, answer, kv_head);
      for (size_t slot = 0; slot < (tile.page_end - tile.page_begin) * page_tokens; ++slot) {
        const size_t at = tile.page_begin * page_tokens + slot;
        double mass = 0, square = 0;
        int32_t uses = 0, first = -1, last = -1, gap = 0;
        for (size_t row = 0; row < weights.size() && slot < cache.slots[kv_head].size(); ++row) {
          const double weight = weights[row][slot];
          if (weight < 0) continue;
          mass += weight;
          square += weight * weight;
          auto visible = std::count_if(weights[row].begin(), weights[row].end(), [](double w) { return w >= 0; });
          if (elsewhere > 0) visible += beyond[row * cache.slots.size() + kv_head];
          if (weight < static_cast<double>(kFactor / static_cast<float>(visible))) continue;
          const int32_t position = queries.positions[row];
          ++uses;
          if (first < 0) first = position;
          if (last >= 0) gap = std::max(gap, position - last);
          last = position;
        }
        ASSERT_NEAR(seen.mass[at], mass, 3e-5 * (1 + mass)) << slot;
        ASSERT_NEAR(seen.square[at], square, 3e-5 * (1 + square)) << slot;
        ASSERT_EQ(seen.uses[at], uses) << slot;
        ASSERT_EQ(seen.first[at], first) << slot;
        ASSERT_EQ(seen.last[at], last) << slot;
        ASSERT_EQ(seen.gap[at], gap) << slot;
      }
    }
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam());
};

TEST_P(ObserveTest, HeadSizesTypesAndGroups) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (int head_dim : {8, 64, 120}) compare({{dtype, head_dim, 64}, 2, 150, false}, 9, 4);
  for (int group : {1, 2, 3, 5, 7}) compare({{DType::kF16, 32, 64}, 2, 100, false}, 5, 2 * group);
  for (int page_tokens : {16, 48, 256}) compare({{DType::kF16, 32, page_tokens}, 1, 300, false}, 3, 4);
}

TEST_P(ObserveTest, WindowSoftcapExplicitPositionsAndBias) {
  compare({{DType::kF16, 32, 64}, 2, 200, false}, 40, 4, 64);
  compare({{DType::kF32, 64, 64}, 2, 200, false}, 20, 4, 0, 5.0f);
  compare({{DType::kF16, 40, 32}, 2, 150, true}, 70, 4);
  compare({{DType::kBF16, 40, 32}, 2, 150, true}, 30, 4, 100, 5.0f);
}

TEST_P(ObserveTest, SlotsSeenElsewhereCountForUses) {
  for (int32_t elsewhere : {1, 100, 5000}) {
    compare({{DType::kF16, 32, 64}, 2, 200, false}, 40, 4, 0, 0, elsewhere);
    compare({{DType::kF32, 40, 32}, 3, 150, true}, 30, 6, 100, 5.0f, elsewhere);
  }
}

TEST_P(ObserveTest, Codes) {
  for (int head_dim : {40, 64})
    for (const KvFormat& format : code_formats(head_dim, 32)) {
      compare({format, 2, 150, false}, 9, 4);
      compare({format, 2, 150, true}, 30, 4, 100, 5.0f);
    }
}

TEST_P(ObserveTest, WeightsOfARowSumToOneWithItsOwnAttention) {
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const TestCache cache(*backend_, {{dtype, 64, 64}, 2, 1500, false});
    const Queries queries(cache, 1, 6);
    const AttentionPlan plan = cache.plan(1);
    const Seen seen = observe(*backend_, cache, queries, plan, attend(*backend_, cache, queries, plan), 1);
    double sum = 0;
    for (float mass : seen.mass) sum += static_cast<double>(mass);
    EXPECT_NEAR(sum, 2, multiplies_bf16(GetParam(), dtype) ? 0.05 : 1e-4);
  }
}

TEST_P(ObserveTest, ThreadsDoNotMatter) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 16}, 2, 500, true});
  const Queries queries(cache, 37, 4);
  const Answer answer = attend_fp64(cache, queries);
  const Seen one = observe(*backend_, cache, queries, cache.plan(37), answer, 1);
  EXPECT_EQ(observe(*cpu_backend(GetParam(), 4), cache, queries, cache.plan(37), answer, 1), one);
}

TEST_P(ObserveTest, RowsThatSeeNothingAddNothing) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 64}, 1, 100, false});
  Queries queries(cache, 2, 2);
  queries.positions = {-1, 5000};
  queries.window = 500;
  const AttentionPlan plan = cache.plan(2);
  const Seen seen = observe(*backend_, cache, queries, plan, attend(*backend_, cache, queries, plan), 1);
  for (size_t i = 0; i < seen.mass.size(); ++i) {
    ASSERT_EQ(seen.mass[i], 0.0f);
    ASSERT_EQ(seen.last[i], -1);
  }
}

TEST_P(ObserveTest, ReadGivesWhatWasWritten) {
  std::vector<KvFormat> formats = code_formats(64, 32);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) formats.push_back({dtype, 40, 32});
  for (const KvFormat& format : formats) {
    const TestCache cache(*backend_, {format, 2, 150, false});
    const auto dim = static_cast<size_t>(format.head_dim);
    std::vector<KvSlot> slots;
    for (size_t t = 150; t-- > 0;) slots.push_back({cache.refs[1][t / 32].page, static_cast<uint32_t>(t % 32)});
    std::vector<float> k(150 * dim), v(150 * dim);
    backend_->kv_read({cache.format(), cache.slab.data(), slots, Tensor(k.data(), DType::kF32, {150, format.head_dim}),
                       Tensor(v.data(), DType::kF32, {150, format.head_dim})});
    for (size_t t = 0; t < 150; ++t)
      for (size_t d = 0; d < dim; ++d) {
        ASSERT_EQ(k[(149 - t) * dim + d], cache.slots[1][t].k[d]);
        ASSERT_EQ(v[(149 - t) * dim + d], cache.slots[1][t].v[d]);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ObserveTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
