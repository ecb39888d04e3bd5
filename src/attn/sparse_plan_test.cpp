// Planners that leave pages out: which ones, and that they leave out none where they are told so.
#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "attn/page_bounds.h"
#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

constexpr KvShape kShape{.layers = 1, .kv_heads = 2};

std::vector<uint32_t> ordinals(const AttentionPlan& plan, int32_t row, int head) {
  std::vector<uint32_t> found;
  for (const AttentionTile& tile : plan.tiles)
    if (tile.row_begin <= row && row < tile.row_end && tile.kv_head == head)
      for (uint32_t i = tile.page_begin; i < tile.page_end; ++i) found.push_back(plan.pages[i].ordinal);
  return found;
}

class TriShapeTest : public testing::Test {
 protected:
  static constexpr int32_t kRows = 256;  // share a list
  AttentionPlan plan(const std::string& spec, const AttentionSegment& segment, int32_t window = 0) {
    AttentionPlan made;
    make_prefill_planner(spec).value()->add({.layer = 0, .window = window, .segments = {&segment, 1}}, made);
    return made;
  }

  FakeKvBackend backend;
  KvFormat format{.dtype = DType::kF32, .head_dim = 1, .page_tokens = 16};
  std::unique_ptr<KvPool> pool = KvPool::create(backend, format, 1 << 20).value();
};

TEST_F(TriShapeTest, RowsReadTheFirstTokensAndTheNearestAndTheLastRowsReadAll) {
  KvSequence sequence(*pool, kShape);
  ASSERT_TRUE(sequence.append(2000));
  for (const int32_t first : {0, 700, 1500}) {
    const AttentionSegment segment{&sequence, 3, 503, first, 2000};
    const AttentionPlan made = plan("trishape:sinks=20,window=300,tail=100", segment);
    for (int32_t row = 3; row < 503; ++row) {
      const int32_t position = first + row - 3;
      const std::vector<uint32_t> pages = ordinals(made, row, 1);
      ASSERT_TRUE(std::is_sorted(pages.begin(), pages.end()));
      const std::set<uint32_t> read(pages.begin(), pages.end());
      ASSERT_EQ(read.size(), pages.size());
      const int32_t nearest = position - position % kRows - 300 + 1;  // of the first row of its group
      for (int32_t at = 0; at <= position; ++at) {
        const bool wanted = position >= 1900 || at < 20 || at > position - 300;
        const bool allowed = wanted || at < 32 || at / 16 >= nearest / 16;
        const bool is_read = read.count(static_cast<uint32_t>(at / 16)) > 0;
        ASSERT_TRUE(is_read ? allowed : !wanted) << "row at " << position << ", key at " << at;
      }
    }
  }
}

TEST_F(TriShapeTest, AWideWindowIsDense) {
  KvSequence sequence(*pool, kShape);
  ASSERT_TRUE(sequence.append(1000));
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < 1000; i += 3) kept.push_back(i);
  ASSERT_TRUE(sequence.retain(0, 1, kept));
  const AttentionSegment segment{&sequence, 0, 600, 400, 1000};
  const AttentionPlan want = dense_plan({.layer = 0, .segments = {&segment, 1}});
  const AttentionPlan made = plan("trishape:window=1000,tail=0", segment);
  // Pages after a group's last row are not listed, which changes nothing: see only what a row may see.
  for (int32_t row = 0; row < 600; ++row)
    for (int head : {0, 1})
      for (uint32_t ordinal : ordinals(want, row, head)) {
        const size_t slot = ordinal * 16;
        if (sequence.position(0, head, slot) > 400 + row) continue;
        const std::vector<uint32_t> pages = ordinals(made, row, head);
        ASSERT_TRUE(std::binary_search(pages.begin(), pages.end(), ordinal)) << row << " " << ordinal;
      }
}

TEST_F(TriShapeTest, ChunksDoNotMatter) {
  KvSequence sequence(*pool, kShape);
  ASSERT_TRUE(sequence.append(1500));
  const AttentionSegment whole{&sequence, 0, 1500, 0, 1500};
  const AttentionPlan want = plan("trishape:sinks=16,window=64,tail=32", whole);
  for (int32_t begin = 0; begin < 1500; begin += 170) {
    const int32_t end = std::min(begin + 170, 1500);
    const AttentionPlan made = plan("trishape:sinks=16,window=64,tail=32", {&sequence, 0, end - begin, begin, 1500});
    for (int32_t row = begin; row < end; ++row) {
      const auto visible = [&](std::vector<uint32_t> pages) {
        std::erase_if(pages, [&](uint32_t ordinal) { return static_cast<int32_t>(ordinal * 16) > row; });
        return pages;
      };
      ASSERT_EQ(visible(ordinals(made, row - begin, 0)), visible(ordinals(want, row, 0))) << row;
    }
  }
}

class ResaTest : public testing::Test {
 protected:
  static constexpr int kDim = 24, kHeads = 4, kPage = 16;

  void fill(KvSequence& sequence, int tokens) {
    ASSERT_TRUE(sequence.append(tokens));
    std::vector<KvSlot> slots;
    sequence.tail_slots(0, tokens, slots);
    std::vector<float> numbers(slots.size() * kDim);
    for (float& x : numbers) x = std::normal_distribution<float>(0, 1)(random);
    write(slots, numbers);
  }
  void write(std::span<const KvSlot> slots, std::span<const float> k) {
    Buffer memory = backend->allocate(k.size_bytes()).value();
    backend->upload(memory.data(), std::as_bytes(k));
    const Tensor t(memory.data(), DType::kF32,
                   {static_cast<int64_t>(slots.size()) / kShape.kv_heads, kShape.kv_heads, kDim});
    backend->kv_write({.format = format, .slab = pool->slab(), .slots = slots, .k = t, .v = t});
  }
  AttentionPlan plan(AttentionPlanner& planner, const KvSequence& sequence, std::span<const float> q) {
    Buffer memory = backend->allocate(q.size_bytes()).value();
    backend->upload(memory.data(), std::as_bytes(q));
    const AttentionSegment segment{&sequence, 0, 1, sequence.next_position() - 1};
    AttentionPlan made;
    planner.add({.layer = 0, .segments = {&segment, 1}, .q = Tensor(memory.data(), DType::kF32, {1, kHeads, kDim})},
                made);
    return made;
  }
  std::vector<float> query() {
    std::vector<float> q(kHeads * kDim);
    for (float& x : q) x = std::normal_distribution<float>(0, 1)(random);
    return q;
  }
  // The key of one token for both heads.
  void set_key(KvSequence& sequence, size_t at, std::span<const float> key) {
    std::vector<KvSlot> slots;
    std::vector<float> both;
    for (int head : {0, 1}) {
      std::vector<PageRef> pages;
      sequence.list_pages(0, head, at / kPage, at / kPage + 1, pages);
      slots.push_back({pages[0].page, static_cast<uint32_t>(at % kPage)});
      both.insert(both.end(), key.begin(), key.end());
    }
    write(slots, both);
  }

  std::mt19937 random{5};
  std::unique_ptr<Backend> backend = make_guarded_backend({.threads = 1, .simd = {}}).value();
  KvFormat format{.dtype = DType::kF32, .head_dim = kDim, .page_tokens = kPage};
  std::unique_ptr<KvPool> pool = KvPool::create(*backend, format, 1 << 22).value();
};

TEST_F(ResaTest, APagesBoundIsAboveAllItsScores) {
  KvSequence sequence(*pool, kShape);
  fill(sequence, 20 * kPage);
  PageBounds bounds;
  std::vector<PageRef> pages;
  sequence.list_pages(0, 1, 0, 20, pages);
  bounds.update(*pool, 0, pages);
  const std::vector<float> q = query();
  for (const PageRef& page : pages) {
    std::vector<KvSlot> slots;
    for (uint32_t i = 0; i < kPage; ++i) slots.push_back({page.page, i});
    Buffer memory = backend->allocate(2 * kPage * kDim * sizeof(float)).value();
    const Tensor k(memory.data(), DType::kF32, {kPage, kDim}), v(memory.data() + k.bytes(), DType::kF32, {kPage, kDim});
    backend->kv_read({.format = format, .slab = pool->slab(), .slots = slots, .k = k, .v = v});
    std::vector<float> keys(kPage * kDim);
    backend->download(std::as_writable_bytes(std::span(keys)), k.data);
    for (size_t i = 0; i < kPage; ++i) {
      float score = 0;
      for (size_t d = 0; d < kDim; ++d) score += q[d] * keys[i * kDim + d];
      EXPECT_LE(score, bounds.score(page.page, std::span(q).first(kDim)) + 1e-4F);
    }
  }
}

TEST_F(ResaTest, FindsThePageOfTheKeyThatIsAskedForAlsoAfterItChanged) {
  KvSequence sequence(*pool, kShape);
  fill(sequence, 50 * kPage + 5);
  auto planner = make_decode_planner("resa:share=0.1,least=2,repair=0").value();
  const std::vector<float> q = query();
  std::vector<float> key(kDim);  // along the mean query of both heads
  for (size_t d = 0; d < kDim; ++d) key[d] = 40 * (q[d] + q[kDim + d] + q[2 * kDim + d] + q[3 * kDim + d]);
  plan(*planner, sequence, q);  // bounds of all pages are known now
  for (size_t at : {size_t{37 * kPage + 3}, size_t{12 * kPage}}) {
    sequence.truncate(static_cast<int32_t>(at));
    fill(sequence, 50 * kPage + 5 - static_cast<int>(at));
    set_key(sequence, at, key);
    const AttentionPlan made = plan(*planner, sequence, q);
    for (int head : {0, 1}) {
      const std::vector<uint32_t> pages = ordinals(made, 0, head);
      EXPECT_EQ(pages.size(), 6u);  // a tenth of 51, rounded up
      EXPECT_TRUE(std::is_sorted(pages.begin(), pages.end()));
      EXPECT_EQ(pages.back(), 50u);
      EXPECT_TRUE(std::binary_search(pages.begin(), pages.end(), static_cast<uint32_t>(at / kPage))) << at;
    }
  }
}

TEST_F(ResaTest, AWholeShareIsDense) {
  KvSequence sequence(*pool, kShape);
  fill(sequence, 30 * kPage + 1);
  auto planner = make_decode_planner("resa:share=1,repair=0").value();
  const AttentionSegment segment{&sequence, 0, 1, sequence.next_position() - 1};
  const AttentionPlan want = dense_plan({.layer = 0, .segments = {&segment, 1}}),
                      made = plan(*planner, sequence, query());
  for (int head : {0, 1}) EXPECT_EQ(ordinals(made, 0, head), ordinals(want, 0, head));
}

}  // namespace
}  // namespace godwit
