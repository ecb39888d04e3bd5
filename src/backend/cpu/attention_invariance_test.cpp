// A row's attention depends on its query, the visible slots and their pages' ordinals, bit by bit on nothing else.
#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/cpu/attention_testing.h"

namespace godwit::testing {
namespace {

struct Case {
  CacheOptions cache;
  int rows, q_heads;
  int32_t window = 0;
  float softcap = 0;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{{DType::kF16, 64, 64}, 2, 1500, false, 1}, 70, 8},
      {{{DType::kF32, 32, 16}, 1, 700, false, 2}, 130, 1},
      {{{DType::kBF16, 120, 32}, 1, 1100, false, 3}, 40, 7},
      {{{DType::kF16, 40, 16}, 2, 600, false, 4}, 150, 6, 90, 10.0f},
      {{{DType::kF16, 32, 16}, 1, 500, true, 5}, 60, 4, 700},
      {{{DType::kF32, 24, 16}, 2, 300, true, 6}, 90, 2, 0, 8.0f},
      {{{DType::kF16, 64, 64, 8, 8}, 2, 1500, false, 7}, 70, 8},
      {{{DType::kF16, 64, 64, 4, 4}, 2, 1500, false, 8}, 70, 8},
      {{{DType::kF16, 40, 16, 8, 8}, 1, 400, false, 9}, 90, 5, 90, 10.0f},
      {{{DType::kF16, 32, 16, 8, 4}, 1, 500, true, 10}, 60, 4, 700},
  };
  return all;
}

class AttentionInvarianceTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls check(cache, queries, answer of one tile and one thread) for every case.
  template <class Check>
  void each_case(Check&& check) {
    for (const Case& c : cases()) {
      const TestCache cache(*backend_, c.cache);
      Queries queries(cache, c.rows, c.q_heads);
      queries.window = c.window;
      queries.softcap = c.softcap;
      check(cache, queries, attend(*backend_, cache, queries, cache.plan(c.rows)));
      if (HasFatalFailure()) return;
    }
  }

  static Queries pick(const Queries& from, const std::vector<int>& rows) {
    Queries some = from;
    const auto size = static_cast<size_t>(from.q_heads * from.head_dim);
    some.rows = static_cast<int>(rows.size());
    some.q.clear();
    some.positions.clear();
    for (int row : rows) {
      const auto at = static_cast<size_t>(row);
      some.q.insert(some.q.end(), from.q.begin() + static_cast<long>(at * size),
                    from.q.begin() + static_cast<long>((at + 1) * size));
      some.positions.push_back(from.positions[at]);
    }
    return some;
  }

  static Answer pick(const Answer& from, int of_rows, const std::vector<int>& rows) {
    Answer some;
    const size_t size = from.out.size() / static_cast<size_t>(of_rows),
                 heads = from.lse.size() / static_cast<size_t>(of_rows);
    for (int row : rows) {
      const auto at = static_cast<size_t>(row);
      some.out.insert(some.out.end(), from.out.data() + at * size, from.out.data() + (at + 1) * size);
      some.lse.insert(some.lse.end(), from.lse.data() + at * heads, from.lse.data() + (at + 1) * heads);
    }
    return some;
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam());
};

TEST_P(AttentionInvarianceTest, Threads) {
  const bool reference = GetParam() == "reference";  // runs on one thread anyway
  for (int threads : reference ? std::vector<int>{2} : std::vector<int>{2, 5, 16}) {
    const auto other = cpu_backend(GetParam(), threads);
    each_case([&](const TestCache& cache, const Queries& queries, const Answer& whole) {
      ASSERT_EQ(attend(*other, cache, queries, cache.plan(queries.rows)), whole) << threads;
      ASSERT_EQ(attend(*other, cache, queries, cache.plan(queries.rows, 3, 0, cache.pages())), whole) << threads;
    });
  }
}

TEST_P(AttentionInvarianceTest, ChunksAndTiles) {
  each_case([&](const TestCache& cache, const Queries& queries, const Answer& whole) {
    for (int chunk : {1, 7, 64}) {
      ASSERT_EQ(attend(*backend_, cache, queries, cache.plan(queries.rows, chunk, 0, cache.pages())), whole) << chunk;
      for (int begin = 0; begin < queries.rows; begin += chunk) {
        std::vector<int> rows(static_cast<size_t>(std::min(chunk, queries.rows - begin)));
        std::iota(rows.begin(), rows.end(), begin);
        const Answer part = attend(*backend_, cache, pick(queries, rows), cache.plan(static_cast<int>(rows.size())));
        ASSERT_EQ(part, pick(whole, queries.rows, rows)) << "chunk " << chunk << " from row " << begin;
      }
    }
  });
}

TEST_P(AttentionInvarianceTest, PermutedRowsAmongStrangers) {
  std::mt19937_64 random(11);
  each_case([&](const TestCache& cache, const Queries& queries, const Answer& whole) {
    std::vector<int> rows(static_cast<size_t>(queries.rows));
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(rows.size() / 2);
    rows.insert(rows.end(), rows.begin(), rows.begin() + 5);  // and some twice
    ASSERT_EQ(attend(*backend_, cache, pick(queries, rows), cache.plan(static_cast<int>(rows.size()))),
              pick(whole, queries.rows, rows));
  });
}

TEST_P(AttentionInvarianceTest, InvisiblePagesNeedNotBeListed) {
  each_case([&](const TestCache& cache, const Queries& queries, const Answer& whole) {
    for (int row = 0; row < queries.rows; row += 13) {
      const int32_t position = queries.positions[static_cast<size_t>(row)];
      AttentionPlan plan;
      for (int head = 0; head < cache.options.kv_heads; ++head) {
        const auto begin = static_cast<uint32_t>(plan.pages.size());
        for (const PageRef& ref : cache.refs[static_cast<size_t>(head)]) {
          const auto& slots = cache.slots[static_cast<size_t>(head)];
          const auto first = slots.begin() + ref.ordinal * static_cast<uint32_t>(cache.format().page_tokens);
          const bool seen = std::any_of(first, first + ref.count, [&](const TestCache::Slot& slot) {
            return slot.position <= position && (queries.window == 0 || position - slot.position < queries.window);
          });
          if (seen) plan.pages.push_back(ref);
        }
        plan.tiles.push_back({0, 1, head, begin, static_cast<uint32_t>(plan.pages.size())});
      }
      ASSERT_EQ(attend(*backend_, cache, pick(queries, {row}), plan), pick(whole, queries.rows, {row})) << row;
    }
  });
}

// A decode step sees a half-filled last page; the same row in a prefill saw it with later tokens in it.
TEST_P(AttentionInvarianceTest, LaterTokensOfAPageDoNotMatter) {
  each_case([&](const TestCache& cache, const Queries& queries, const Answer& whole) {
    if (cache.options.explicit_slots) return;
    for (int row = 0; row < queries.rows; row += 9) {
      const auto tokens = static_cast<uint32_t>(queries.positions[static_cast<size_t>(row)] + 1);
      const auto page_tokens = static_cast<uint32_t>(cache.format().page_tokens);
      AttentionPlan plan = cache.plan(1);
      for (PageRef& ref : plan.pages) {
        const uint32_t begin = ref.ordinal * page_tokens;
        ref.count = tokens > begin ? std::min(page_tokens, tokens - begin) : 0;
      }
      ASSERT_EQ(attend(*backend_, cache, pick(queries, {row}), plan), pick(whole, queries.rows, {row})) << row;
    }
  });
}

// The newest slot is in the future of every query; the oldest has left the window of most.
TEST_P(AttentionInvarianceTest, InfinityInAnInvisibleSlotStaysThere) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<KvFormat> formats = code_formats(32, 16);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) formats.push_back({dtype, 40, 16});
  for (const KvFormat& format : formats)
    for (bool explicit_slots : {false, true})
      for (bool newest : {false, true})
        for (float poison : {kInfinity, -kInfinity, kNan}) {
          TestCache cache(*backend_, {format, 1, 64, explicit_slots, 3});
          Queries queries(cache, 48, 3);
          std::iota(queries.positions.begin(), queries.positions.end(), explicit_slots ? 20 : 10);
          if (!newest) queries.window = 8;
          const Answer clean = attend(*backend_, cache, queries, cache.plan(48));
          const auto [first, last] =
              std::minmax_element(cache.slots[0].begin(), cache.slots[0].end(),
                                  [](const auto& a, const auto& b) { return a.position < b.position; });
          const auto index = static_cast<uint32_t>((newest ? last : first) - cache.slots[0].begin());
          const KvSlot place{cache.refs[0][index / 16].page, index % 16};
          std::vector<float> line(static_cast<size_t>(format.head_dim), poison);
          const Tensor lines(line.data(), DType::kF32, {1, 1, format.head_dim});
          backend_->kv_write({cache.format(), cache.slab.data(), {&place, 1}, lines, lines});
          EXPECT_EQ(attend(*backend_, cache, queries, cache.plan(48)), clean)
              << format_name(format) << (explicit_slots ? " explicit" : "") << (newest ? " newest" : " oldest");
        }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionInvarianceTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
