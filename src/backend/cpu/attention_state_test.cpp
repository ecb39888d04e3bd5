// A walk in pieces: from state to state, or every segment by itself, it gives the bits of one walk.
#include <limits>

#include "backend/cpu/attention_testing.h"

namespace godwit::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AttentionStateTest : public ::testing::TestWithParam<std::string> {
 protected:
  struct Case {
    CacheOptions cache;
    int rows, q_heads;
    int32_t window = 0;
  };
  static std::vector<Case> cases() {
    return {{{{DType::kF16, 64, 64}, 2, 4000, false, 1}, 70, 8},
            {{{DType::kF32, 24, 16}, 1, 1000, false, 2}, 130, 16},
            {{{DType::kBF16, 120, 32}, 2, 2100, false, 3}, 40, 2, 700},
            {{{DType::kF16, 64, 64, 8, 8}, 1, 3000, false, 4}, 33, 4}};
  }

  struct States {
    States(const Queries& queries, float fill)
        : width(attention_state_width(queries.head_dim)),
          numbers(static_cast<size_t>(queries.rows * queries.q_heads * width), fill) {}
    Tensor tensor(const Queries& queries) {
      return {numbers.data(), DType::kF32, {queries.rows, queries.q_heads, width}};
    }
    int64_t width;
    std::vector<float> numbers;
  };

  Answer finish(const TestCache& cache, const Queries& queries, std::span<const Tensor> states) {
    Answer answer;
    answer.out.assign(queries.q.size(), kNan);
    answer.lse.assign(static_cast<size_t>(queries.rows * queries.q_heads), kNan);
    backend_->finish_attention({cache.format(), states, partial_of(queries, answer)});
    return answer;
  }
  // One call over pages [begin, end) of every head.
  void walk(const TestCache& cache, Queries& queries, int begin, int end, Tensor state, bool resumes) {
    const AttentionPlan plan = cache.plan(queries.rows, 50, begin, end);
    Answer unused;
    AttentionArgs args = attention_args(cache, queries, plan, unused);
    args.partial = {};
    args.state = state;
    args.resumes = resumes;
    backend_->attention(args);
  }
  void expect_equal(const Answer& got, const Answer& want) {
    if (GetParam() == "reference") return expect_near(got, want, 1e-6f);  // its walk has no segments
    EXPECT_EQ(got, want);
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam(), 2);
};

TEST_P(AttentionStateTest, GoesOnWhereItStopped) {
  for (const Case& c : cases()) {
    const TestCache cache(*backend_, c.cache);
    Queries queries(cache, c.rows, c.q_heads);
    queries.window = c.window;
    const Answer whole = attend(*backend_, cache, queries, cache.plan(c.rows));
    States state(queries, kNan);
    const Tensor tensor = state.tensor(queries);
    for (int page = 0; page < cache.pages(); page += static_cast<int>(kSegmentPages))
      walk(cache, queries, page, std::min(cache.pages(), page + static_cast<int>(kSegmentPages)), tensor, page > 0);
    expect_equal(finish(cache, queries, {&tensor, 1}), whole);
  }
}

TEST_P(AttentionStateTest, SegmentsByThemselvesComeTogether) {
  for (const Case& c : cases()) {
    const TestCache cache(*backend_, c.cache);
    Queries queries(cache, c.rows, c.q_heads);
    queries.window = c.window;
    const Answer whole = attend(*backend_, cache, queries, cache.plan(c.rows));
    std::vector<States> states;
    states.reserve(static_cast<size_t>(cache.pages()));
    std::vector<Tensor> tensors;
    for (int page = 0; page < cache.pages(); page += static_cast<int>(kSegmentPages)) {
      tensors.push_back(states.emplace_back(queries, kNan).tensor(queries));
      walk(cache, queries, page, std::min(cache.pages(), page + static_cast<int>(kSegmentPages)), tensors.back(),
           false);
    }
    expect_equal(finish(cache, queries, tensors), whole);
    std::swap(tensors.front(), tensors.back());
    expect_near(finish(cache, queries, tensors), whole, 1e-5f);  // order is a matter of bits only
  }
}

TEST_P(AttentionStateTest, RowsOfNoTileAreEmptyOrStayAsTheyAre) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 16}, 1, 100, false, 5});
  Queries queries(cache, 4, 2);
  States state(queries, kNan);
  const Tensor tensor = state.tensor(queries);
  AttentionPlan plan = cache.plan(2);
  Answer unused;
  AttentionArgs args = attention_args(cache, queries, plan, unused);
  args.partial = {};
  args.state = tensor;
  backend_->attention(args);
  const Answer half = finish(cache, queries, {&tensor, 1});
  const auto row = static_cast<size_t>(2 * queries.head_dim);
  for (size_t i = 2 * row; i < 4 * row; ++i) EXPECT_EQ(half.out[i], 0);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(half.lse[i], -std::numeric_limits<float>::infinity());
  for (AttentionTile& tile : plan.tiles) tile.row_begin = 2, tile.row_end = 4;
  args.resumes = true;
  backend_->attention(args);
  expect_equal(finish(cache, queries, {&tensor, 1}), attend(*backend_, cache, queries, cache.plan(4)));
}

TEST_P(AttentionStateTest, PollsWhileItWalks) {
  backend_ = cpu_backend(GetParam());  // of several threads, the calling one might find nothing left to do
  const TestCache cache(*backend_, {{DType::kF16, 64, 64}, 2, 2000, false, 6});
  Queries queries(cache, 200, 8);
  const AttentionPlan plan = cache.plan(200);
  Answer answer;
  AttentionArgs args = attention_args(cache, queries, plan, answer);
  int polls = 0;
  const std::function<void()> poll = [&] { ++polls; };
  args.poll = &poll;
  backend_->attention(args);
  EXPECT_GT(polls, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionStateTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
