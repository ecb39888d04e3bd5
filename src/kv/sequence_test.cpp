#include "kv/sequence.h"

#include <numeric>

#include <gtest/gtest.h>

#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF32, .head_dim = 8, .page_tokens = 4};
constexpr KvShape kShape{.layers = 2, .kv_heads = 3};
constexpr size_t kHeads = 6;

std::vector<uint32_t> range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

class KvSequenceTest : public testing::Test {
 protected:
  void open(size_t pages, size_t extra_bytes = 0) {
    pool = KvPool::create(backend, kFormat, pages * kFormat.page_bytes() + extra_bytes).value();
  }
  std::unique_ptr<KvSequence> make(int tokens) {
    auto sequence = std::make_unique<KvSequence>(*pool, kShape);
    EXPECT_TRUE(sequence->append(tokens));
    return sequence;
  }
  std::vector<int32_t> positions(const KvSequence& sequence, int layer, int head) {
    std::vector<int32_t> all;
    for (size_t i = 0; i < sequence.slots(layer, head); ++i) all.push_back(sequence.position(layer, head, i));
    return all;
  }
  void expect_sound(std::initializer_list<const KvSequence*> sequences) {
    for (const KvSequence* sequence : sequences) {
      Status status = sequence->check_integrity();
      EXPECT_TRUE(status) << status.error().message;
    }
    Status status = pool->check_integrity();
    EXPECT_TRUE(status) << status.error().message;
  }

  FakeKvBackend backend;
  std::unique_ptr<KvPool> pool;
};

TEST_F(KvSequenceTest, AppendGivesConsecutiveSlotsOfOwnPages) {
  open(100);
  auto sequence = make(3);
  ASSERT_TRUE(sequence->append(3));
  EXPECT_EQ(sequence->next_position(), 6);
  EXPECT_EQ(pool->pages_in_use(), 2 * kHeads);
  EXPECT_EQ(sequence->bytes(), pool->bytes_in_use());

  std::vector<KvSlot> slots;
  sequence->tail_slots(1, 3, slots);
  ASSERT_EQ(slots.size(), 9u);
  std::vector<PageRef> pages;
  for (int head = 0; head < 3; ++head) {
    pages.clear();
    sequence->list_pages(1, head, 0, 2, pages);
    EXPECT_EQ(pages[0].count, 4u);
    EXPECT_EQ(pages[1].count, 2u);
    EXPECT_EQ(pages[1].first_position, 4);
    EXPECT_EQ(pages[1].ordinal, 1u);
    EXPECT_EQ(pages[1].aux, kNoAux);
    for (uint32_t row = 0; row < 3; ++row) {
      const KvSlot& slot = slots[row * 3 + static_cast<uint32_t>(head)];
      EXPECT_EQ(slot.page, pages[(3 + row) / 4].page);
      EXPECT_EQ(slot.slot, (3 + row) % 4);
    }
  }
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, AppendIsAllOrNothingAndSaysWhatIsMissing) {
  open(2 * kHeads + 1);
  auto first = make(4);
  KvSequence second(*pool, kShape);
  EXPECT_EQ(second.append(8).missing_pages, kHeads - 1);
  EXPECT_EQ(second.next_position(), 0);
  EXPECT_EQ(pool->pages_in_use(), kHeads);
  EXPECT_EQ(second.append_need(8).page_bytes, 2 * kHeads * kFormat.page_bytes());
  expect_sound({first.get(), &second});
  first.reset();
  EXPECT_TRUE(second.append(8));
  EXPECT_EQ(second.append(1).missing_pages, kHeads - 1);
}

TEST_F(KvSequenceTest, ForkSharesUntilOneAppends) {
  open(100);
  auto a = make(6);
  auto b = a->fork();
  EXPECT_EQ(pool->pages_in_use(), 2 * kHeads);
  EXPECT_EQ(a->exclusive_bytes(), 0u);
  ASSERT_TRUE(b->append(1));  // copies the half-full page of each head
  EXPECT_EQ(pool->pages_in_use(), 3 * kHeads);
  EXPECT_EQ(b->exclusive_bytes(), kHeads * kFormat.page_bytes());
  ASSERT_TRUE(a->append(1));  // which leaves a's to itself
  EXPECT_EQ(pool->pages_in_use(), 3 * kHeads);
  ASSERT_TRUE(a->append(1));
  auto c = a->fork();
  ASSERT_TRUE(c->append(1));  // a full page is never written to
  EXPECT_EQ(pool->pages_in_use(), 4 * kHeads);
  expect_sound({a.get(), b.get(), c.get()});
  a.reset(), b.reset(), c.reset();
  EXPECT_EQ(pool->bytes_in_use(), 0u);
}

TEST_F(KvSequenceTest, TruncateFreesPagesAndAppendContinues) {
  open(100);
  auto sequence = make(11);
  sequence->truncate(20);
  EXPECT_EQ(sequence->next_position(), 11);
  sequence->truncate(4);
  EXPECT_EQ(pool->pages_in_use(), kHeads);
  EXPECT_EQ(sequence->next_position(), 4);
  ASSERT_TRUE(sequence->append(1));
  EXPECT_EQ(positions(*sequence, 0, 0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  sequence->truncate(0);
  EXPECT_EQ(pool->bytes_in_use(), 0u);
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, DropFreesPagesOfOneHeadOnly) {
  open(100);
  auto sequence = make(16);
  ASSERT_TRUE(sequence->drop(1, 2, std::vector<uint32_t>{1, 2, 3, 5, 6, 8, 9, 10, 11, 12}));
  EXPECT_EQ(positions(*sequence, 1, 2), (std::vector<int32_t>{0, 4, 7, 13, 14, 15}));
  EXPECT_EQ(sequence->pages(1, 2), 2u);
  EXPECT_EQ(sequence->pages(1, 1), 4u);
  EXPECT_EQ(pool->pages_in_use(), 4 * kHeads - 2);
  EXPECT_EQ(pool->aux_in_use(), 1u);  // 14, 15 are consecutive
  ASSERT_TRUE(sequence->append(3));
  EXPECT_EQ(positions(*sequence, 1, 2), (std::vector<int32_t>{0, 4, 7, 13, 14, 15, 16, 17, 18}));
  ASSERT_TRUE(sequence->retain(1, 2, {}));
  EXPECT_EQ(sequence->pages(1, 2), 0u);
  ASSERT_TRUE(sequence->append(1));
  EXPECT_EQ(positions(*sequence, 1, 2), (std::vector<int32_t>{19}));
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, DropOfWholePagesMovesNothing) {
  open(100);
  auto a = make(18);
  auto b = a->fork();
  ASSERT_TRUE(a->drop(0, 0, range(4, 12)));
  EXPECT_EQ(backend.moves, 0);
  EXPECT_EQ(pool->pages_in_use(), 5 * kHeads);  // all still shared or held by b
  EXPECT_EQ(positions(*a, 0, 0), (std::vector<int32_t>{0, 1, 2, 3, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(pool->aux_in_use(), 0u);
  b.reset();
  EXPECT_EQ(pool->pages_in_use(), 5 * kHeads - 2);
  expect_sound({a.get()});
}

TEST_F(KvSequenceTest, DropOnSharedPagesCopies) {
  open(5 * kHeads);
  auto a = make(20);
  auto b = a->fork();
  // Nothing of the budget is left for the copies that two shared pages need.
  EXPECT_EQ(b->drop(0, 0, range(0, 13)).missing_pages, 2u);
  EXPECT_EQ(positions(*b, 0, 0).size(), 20u);
  a->truncate(0);
  EXPECT_TRUE(b->drop(0, 0, range(0, 13)));
  EXPECT_EQ(positions(*b, 0, 0), (std::vector<int32_t>{13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(pool->aux_in_use(), 0u);  // consecutive, if not from a page's start
  expect_sound({a.get(), b.get()});
}

TEST_F(KvSequenceTest, DropUnderAFullBudgetPaysAuxFromWhatItFrees) {
  open(4 * kHeads);
  auto sequence = make(16);
  EXPECT_EQ(sequence->drop(0, 0, std::vector<uint32_t>{1}).missing_pages, 1u);  // frees no page
  EXPECT_TRUE(sequence->drop(0, 0, std::vector<uint32_t>{1, 5, 9, 13}));
  EXPECT_EQ(pool->pages_in_use(), 4 * kHeads - 1);
  EXPECT_EQ(pool->aux_in_use(), 3u);
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, GapsMakeTheLastPageExplicit) {
  open(100);
  auto sequence = make(6);
  ASSERT_TRUE(sequence->append(4, 100));
  EXPECT_EQ(positions(*sequence, 1, 1), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 100, 101, 102, 103}));
  EXPECT_EQ(pool->aux_in_use(), kHeads);
  EXPECT_EQ(sequence->slots_before(1, 1, 50), 6u);
  EXPECT_EQ(sequence->slots_before(1, 1, 101), 7u);
  sequence->truncate(8);
  EXPECT_EQ(sequence->next_position(), 8);
  EXPECT_EQ(positions(*sequence, 1, 1).size(), 6u);
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, DecodingAfterCompactionUploadsNothing) {
  open(100);
  auto sequence = make(16);
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 3; ++head) ASSERT_TRUE(sequence->drop(layer, head, range(2, 9)));
  const int uploads = backend.uploads;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(sequence->append(1));
  EXPECT_EQ(backend.uploads, uploads);
  expect_sound({sequence.get()});
}

TEST_F(KvSequenceTest, BiasesAreCopiedOnWriteAndGoWithTheirSlots) {
  open(100);
  auto a = make(9);
  auto b = a->fork();
  const size_t before = pool->pages_in_use();
  ASSERT_TRUE(b->set_biases(0, 1, std::vector<uint32_t>{5, 8}, std::vector<float>{0, 1.5f}));
  EXPECT_EQ(pool->pages_in_use(), before + 1);  // setting 0 to 0 changes nothing
  ASSERT_TRUE(b->drop(0, 1, range(0, 6)));
  EXPECT_EQ(b->bias(0, 1, 2), 1.5f);
  EXPECT_EQ(b->bias(0, 1, 1), 0);
  EXPECT_EQ(a->bias(0, 1, 8), 0);
  ASSERT_TRUE(b->set_biases(0, 1, std::vector<uint32_t>{2}, std::vector<float>{0}));
  EXPECT_EQ(b->bias(0, 1, 2), 0);
  // A truncated slot's bias does not come back with the next token.
  ASSERT_TRUE(b->set_biases(0, 1, std::vector<uint32_t>{2}, std::vector<float>{4}));
  b->truncate(8);
  ASSERT_TRUE(b->append(1));
  EXPECT_EQ(b->bias(0, 1, 2), 0);
  expect_sound({a.get(), b.get()});
}

}  // namespace
}  // namespace godwit
