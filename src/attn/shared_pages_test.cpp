#include "attn/shared_pages.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

constexpr KvShape kShape{.layers = 1, .kv_heads = 2};
constexpr int kSegment = 4 * static_cast<int>(kSegmentPages);  // tokens

class SharedPagesTest : public testing::Test {
 protected:
  std::unique_ptr<KvSequence> sequence(int tokens) {
    auto made = std::make_unique<KvSequence>(*pool, kShape);
    EXPECT_TRUE(made->append(tokens));
    return made;
  }
  static std::unique_ptr<KvSequence> fork(const KvSequence& from, int tokens) {
    auto made = from.fork();
    EXPECT_TRUE(made->append(tokens));
    return made;
  }
  // One row at the end of each.
  static AttentionPlan plan_of(std::initializer_list<const KvSequence*> list) {
    std::vector<AttentionSegment> segments;
    for (const KvSequence* one : list) {
      const auto row = static_cast<int32_t>(segments.size());
      segments.push_back({one, row, row + 1, one->next_position() - 1});
    }
    return dense_plan({.layer = 0, .segments = segments});
  }

  FakeKvBackend backend;
  KvFormat format{.dtype = DType::kF32, .head_dim = 1, .page_tokens = 4};
  std::unique_ptr<KvPool> pool = KvPool::create(backend, format, 1 << 20).value();
};

TEST_F(SharedPagesTest, WholeSegmentsThatTilesBeginWith) {
  const auto book = sequence(3 * kSegment + 20), a = fork(*book, 3), b = fork(*book, 40), other = sequence(700);
  SharedPlan found;
  const AttentionPlan plan = plan_of({other.get(), a.get(), b.get(), book.get()});
  ASSERT_TRUE(find_shared_pages(plan, found));
  ASSERT_EQ(found.shared.tiles.size(), 2u);  // one a head
  for (const AttentionTile& tile : found.shared.tiles) {
    EXPECT_EQ(tile.row_begin, 1);
    EXPECT_EQ(tile.row_end, 4);
    EXPECT_EQ(tile.page_end - tile.page_begin, 3 * kSegmentPages);
  }
  // What was listed for a row is listed still, once and in order.
  for (int32_t row = 0; row < 4; ++row) {
    for (int head = 0; head < 2; ++head) {
      std::vector<PageId> want, got;
      const auto list = [&](const AttentionPlan& from, std::vector<PageId>& to) {
        for (const AttentionTile& tile : from.tiles)
          if (tile.row_begin <= row && row < tile.row_end && tile.kv_head == head)
            for (uint32_t i = tile.page_begin; i < tile.page_end; ++i) to.push_back(from.pages[i].page);
      };
      list(plan, want);
      list(found.shared, got);
      list(found.rest, got);
      EXPECT_EQ(got, want);
    }
  }
}

TEST_F(SharedPagesTest, NothingIsSharedWhereNothingIs) {
  const auto book = sequence(3 * kSegment), a = fork(*book, 3), b = fork(*book, 3), other = sequence(700);
  const auto brief = sequence(kSegment - 1), c = fork(*brief, 80), d = fork(*brief, 80);
  SharedPlan found;
  EXPECT_FALSE(find_shared_pages(plan_of({a.get()}), found));
  EXPECT_FALSE(find_shared_pages(plan_of({a.get(), other.get(), b.get()}), found));  // not one after another
  EXPECT_FALSE(find_shared_pages(plan_of({c.get(), d.get()}), found));               // less than a segment
  const AttentionSegment many[] = {{a.get(), 0, 30, 3 * kSegment - 27}, {b.get(), 30, 60, 3 * kSegment - 27}};
  EXPECT_FALSE(find_shared_pages(dense_plan({.layer = 0, .segments = many}), found));  // rows enough of their own
}

TEST_F(SharedPagesTest, ATileThatWouldCostMoreThanItSavesIsLeftOut) {
  const auto start = sequence(kSegment), book = fork(*start, 5 * kSegment), a = fork(*book, 3), b = fork(*book, 3),
             c = fork(*book, 3), odd = fork(*start, 2 * kSegment);
  SharedPlan found;
  ASSERT_TRUE(find_shared_pages(plan_of({a.get(), b.get(), c.get(), odd.get()}), found));
  ASSERT_EQ(found.shared.tiles.size(), 2u);
  EXPECT_EQ(found.shared.tiles[0].row_end, 3);
  EXPECT_EQ(found.shared.tiles[0].page_end, 6 * kSegmentPages);
}

}  // namespace
}  // namespace godwit
