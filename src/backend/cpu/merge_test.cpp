// Partials over disjoint sets merge to the partial over their union.
#include <cmath>
#include <limits>

#include "backend/cpu/attention_testing.h"

namespace godwit::testing {
namespace {

class MergeTest : public ::testing::TestWithParam<std::string> {
 protected:
  Answer merged(const Queries& queries, Answer into, Answer from) {
    backend_->merge_partials(partial_of(queries, into), partial_of(queries, from));
    return into;
  }
  // Attention over pages [begin, end) as a tree of random splits.
  Answer by_splits(const TestCache& cache, const Queries& queries, int begin, int end, std::mt19937_64& random) {
    if (end - begin <= 1 || random() % 8 == 0)
      return attend(*backend_, cache, queries, cache.plan(queries.rows, queries.rows, begin, end));
    const int middle =
        begin + static_cast<int>(random() % static_cast<uint64_t>(end - begin + 1));  // either may be empty
    Answer left = by_splits(cache, queries, begin, middle, random);
    Answer right = by_splits(cache, queries, middle, end, random);
    return random() % 2 == 0 ? merged(queries, left, right) : merged(queries, right, left);
  }

  // What a split answer is compared with, and how closely.
  void expect_whole(const Answer& got, const TestCache& cache, const Queries& queries) {
    const bool bf16 = multiplies_bf16(GetParam(), cache.format().dtype);
    expect_near(got, bf16 ? attend_fp64_of_bf16(cache, queries) : attend_fp64(cache, queries), bf16 ? 4e-3f : 4e-6f);
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam(), 2);
};

TEST_P(MergeTest, AnySplitInAnyOrder) {
  std::mt19937_64 random(5);
  for (int group : {1, 4, 16})
    for (int head_dim : {32, 64, 128, 256})
      for (int32_t window : {0, 60}) {
        SCOPED_TRACE(fmt::format("group {} head_dim {} window {}", group, head_dim, window));
        const TestCache cache(*backend_, {{DType::kF16, head_dim, 16}, 1, 200, false, random()});
        Queries queries(cache, 6, group);
        queries.positions = {3, 40, 77, 130, 198, 199};
        queries.window = window;
        for (int i = 0; i < 4; ++i) expect_whole(by_splits(cache, queries, 0, cache.pages(), random), cache, queries);
      }
}

TEST_P(MergeTest, ExplicitPositionsSplitToo) {
  std::mt19937_64 random(6);
  const TestCache cache(*backend_, {{DType::kBF16, 64, 16}, 2, 150, true, 9});
  Queries queries(cache, 20, 8);
  queries.window = 200;
  for (int i = 0; i < 6; ++i) expect_whole(by_splits(cache, queries, 0, cache.pages(), random), cache, queries);
}

TEST_P(MergeTest, EmptyPartsChangeNothing) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 16}, 2, 100, false});
  const Queries queries(cache, 40, 4);
  const Answer whole = attend(*backend_, cache, queries, cache.plan(40));
  const Answer nothing = attend(*backend_, cache, queries, cache.plan(40, 40, 0, 0));
  for (float value : nothing.out) ASSERT_EQ(value, 0.0f);
  for (float value : nothing.lse) ASSERT_EQ(value, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(merged(queries, whole, nothing), whole);
  EXPECT_EQ(merged(queries, nothing, whole), whole);
  EXPECT_EQ(merged(queries, nothing, nothing), nothing);
}

TEST_P(MergeTest, SameBitsFromEitherSide) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 16}, 2, 100, false});
  const Queries queries(cache, 20, 4);
  const Answer left = attend(*backend_, cache, queries, cache.plan(20, 20, 0, 2));
  const Answer right = attend(*backend_, cache, queries, cache.plan(20, 20, 2, cache.pages()));
  EXPECT_EQ(merged(queries, left, right), merged(queries, right, left));
}

TEST_P(MergeTest, FarApart) {
  const TestCache cache(*backend_, {{DType::kF32, 32, 16}, 1, 16, false});
  const Queries queries(cache, 1, 1);
  Answer big = attend(*backend_, cache, queries, cache.plan(1)), small = big;
  big.lse[0] = 3000;
  small.lse[0] = -3000;
  for (float& value : small.out) value += 1;
  EXPECT_EQ(merged(queries, big, small), big);
  EXPECT_EQ(merged(queries, small, big), big);
}

INSTANTIATE_TEST_SUITE_P(Targets, MergeTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
