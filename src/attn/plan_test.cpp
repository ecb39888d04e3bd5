#include "attn/plan.h"

#include <random>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF32, .head_dim = 1, .page_tokens = 4};
constexpr KvShape kShape{.layers = 2, .kv_heads = 3};

class PlanTest : public testing::Test {
 protected:
  std::unique_ptr<KvSequence> make(int tokens) {
    auto sequence = std::make_unique<KvSequence>(*pool, kShape);
    EXPECT_TRUE(sequence->append(tokens));
    return sequence;
  }

  FakeKvBackend backend;
  std::unique_ptr<KvPool> pool = KvPool::create(backend, kFormat, 1 << 20).value();
};

TEST_F(PlanTest, ListsAllPagesOfEachHeadInOrder) {
  auto sequence = make(10);
  AttentionSegment segment{sequence.get(), 5, 7, 8};
  AttentionPlan plan = dense_plan({.layer = 1, .segments = {&segment, 1}});
  ASSERT_EQ(plan.tiles.size(), 3u);
  ASSERT_EQ(plan.pages.size(), 9u);
  for (uint32_t head = 0; head < 3; ++head) {
    const AttentionTile& tile = plan.tiles[head];
    EXPECT_EQ(tile.row_begin, 5);
    EXPECT_EQ(tile.row_end, 7);
    EXPECT_EQ(tile.kv_head, static_cast<int>(head));
    EXPECT_EQ(tile.page_begin, 3 * head);
    EXPECT_EQ(tile.page_end, 3 * head + 3);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(plan.pages[tile.page_begin + i].ordinal, i);
      EXPECT_EQ(plan.pages[tile.page_begin + i].first_position, static_cast<int32_t>(4 * i));
      EXPECT_EQ(plan.pages[tile.page_begin + i].count, i < 2 ? 4u : 2u);
    }
  }
}

TEST_F(PlanTest, KeepsOrdinalsOfPagesInsideTheWindow) {
  auto sequence = make(40);
  AttentionSegment segment{sequence.get(), 0, 1, 30};
  AttentionPlan plan = dense_plan({.layer = 0, .window = 8, .segments = {&segment, 1}});
  ASSERT_EQ(plan.tiles.size(), 3u);
  std::vector<uint32_t> ordinals;
  for (uint32_t i = plan.tiles[2].page_begin; i < plan.tiles[2].page_end; ++i)
    ordinals.push_back(plan.pages[i].ordinal);
  EXPECT_EQ(ordinals, (std::vector<uint32_t>{5, 6, 7}));  // positions 23 to 30
}

TEST_F(PlanTest, RowsThatSeeNothingHaveNoTile) {
  auto sequence = make(12);
  ASSERT_TRUE(sequence->retain(0, 1, {}));
  const AttentionSegment segments[] = {{sequence.get(), 0, 1, 11}, {sequence.get(), 1, 1, 11}};
  AttentionPlan plan = dense_plan({.layer = 0, .segments = segments});
  ASSERT_EQ(plan.tiles.size(), 2u);
  EXPECT_EQ(plan.tiles[0].kv_head, 0);
  EXPECT_EQ(plan.tiles[1].kv_head, 2);
}

// A page is planned for a segment if and only if it lies between the first and the last slot that some row sees.
TEST_F(PlanTest, CoversExactlyWhatRowsCanSee) {
  std::mt19937 random(7);
  auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::unique_ptr<KvSequence>> sequences;
    std::vector<AttentionSegment> segments;
    int32_t row = 0;
    for (int i = 0; i < 3; ++i) {
      sequences.push_back(make(1 + below(60)));
      KvSequence& sequence = *sequences.back();
      for (int head = 0; head < 3; ++head) {
        std::vector<uint32_t> kept;
        for (uint32_t slot = 0; slot < sequence.slots(1, head); ++slot)
          if (below(2)) kept.push_back(slot);
        if (below(2) > 0) {
          ASSERT_TRUE(sequence.retain(1, head, kept));
        }
      }
      ASSERT_TRUE(sequence.append(1 + below(9)));
      const int rows = 1 + below(8);
      segments.push_back({&sequence, row, row + rows, below(sequence.next_position())});
      row += rows;
    }
    const int32_t window = below(2) ? 0 : 1 + below(40);
    AttentionPlan plan = dense_plan({.layer = 1, .window = window, .segments = segments});

    size_t tiles = 0;
    for (const AttentionSegment& segment : segments) {
      for (int head = 0; head < 3; ++head) {
        std::vector<uint32_t> seen;
        for (size_t slot = 0; slot < segment.sequence->slots(1, head); ++slot) {
          const int32_t at = segment.sequence->position(1, head, slot);
          for (int32_t r = 0; r < segment.row_end - segment.row_begin; ++r) {
            const int32_t query = segment.first_position + r;
            const auto ordinal = static_cast<uint32_t>(slot / 4);
            if (at <= query && (window == 0 || query - at < window) && (seen.empty() || seen.back() != ordinal))
              seen.push_back(ordinal);
          }
        }
        std::vector<uint32_t> planned;
        for (const AttentionTile& tile : plan.tiles)
          if (tile.row_begin == segment.row_begin && tile.kv_head == head)
            for (uint32_t i = tile.page_begin; i < tile.page_end; ++i) planned.push_back(plan.pages[i].ordinal);
        ASSERT_EQ(planned, seen) << "round " << round;
        tiles += seen.empty() ? 0 : 1;
      }
    }
    EXPECT_EQ(plan.tiles.size(), tiles);
  }
}

TEST_F(PlanTest, DenseIsTheSameInBothTables) {
  auto sequence = make(40);
  const AttentionSegment segments[] = {{sequence.get(), 0, 3, 20}, {sequence.get(), 3, 4, 39}};
  const PlanRequest request{.layer = 1, .window = 9, .segments = segments};
  const AttentionPlan want = dense_plan(request);
  ASSERT_EQ(want.tiles.size(), 6u);
  for (auto make_planner : {make_prefill_planner, make_decode_planner}) {
    AttentionPlan plan;
    (*make_planner("dense"))->add(request, plan);
    ASSERT_EQ(plan.tiles.size(), want.tiles.size());
    ASSERT_EQ(plan.pages.size(), want.pages.size());
    for (size_t i = 0; i < plan.pages.size(); ++i) EXPECT_EQ(plan.pages[i].ordinal, want.pages[i].ordinal) << i;
  }
}

TEST(Planners, TablesHaveDense) {
  for (auto table : {all_prefill_planners(), all_decode_planners()}) {
    ASSERT_FALSE(table.empty());
    for (const AttentionPlannerRow* row : table) EXPECT_FALSE(row->info.reference.empty());
  }
  EXPECT_TRUE(make_prefill_planner("dense"));
  EXPECT_TRUE(make_decode_planner("dense"));
  EXPECT_EQ(make_prefill_planner("dens").error().message.rfind("no prefill method is named 'dens'; there are", 0), 0u);
  EXPECT_FALSE(make_decode_planner("dense:k=2"));
}

}  // namespace
}  // namespace godwit
