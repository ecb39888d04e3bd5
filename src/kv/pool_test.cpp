#include "kv/pool.h"

#include <gtest/gtest.h>

#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF32, .head_dim = 2, .page_tokens = 4};
constexpr size_t kAux = 4 * 8;

struct Holder final : PageHolder {
  std::vector<PageId> held;
  void count_references(PageCounts& counts) const override {
    for (PageId page : held) counts.add(page);
  }
};

class KvPoolTest : public testing::Test {
 protected:
  void open(size_t budget) {
    pool = KvPool::create(backend, kFormat, budget).value();
    pool->add_holder(&holder);
  }
  ~KvPoolTest() override {
    if (pool) pool->remove_holder(&holder);
  }
  PageId take(int32_t first_position = 0) {
    PageId page = pool->allocate(first_position).value();
    holder.held.push_back(page);
    return page;
  }

  const size_t page_bytes = kFormat.page_bytes();
  FakeKvBackend backend;
  Holder holder;
  std::unique_ptr<KvPool> pool;
};

TEST_F(KvPoolTest, BudgetIsHard) {
  open(3 * page_bytes + page_bytes / 2);
  EXPECT_EQ(pool->capacity_pages(), 3u);
  EXPECT_EQ(pool->bytes_reserved(), 3 * page_bytes);
  EXPECT_EQ(pool->bytes_in_use(), 0u);
  for (int i = 0; i < 3; ++i) take();
  EXPECT_EQ(pool->allocate(0), std::nullopt);
  EXPECT_EQ(pool->missing_pages({.page_bytes = 2 * page_bytes}), 2u);
  EXPECT_EQ(pool->bytes_in_use(), 3 * page_bytes);

  pool->unref(holder.held.back());
  holder.held.pop_back();
  EXPECT_EQ(pool->pages_in_use(), 2u);
  EXPECT_EQ(pool->peak_bytes(), 3 * page_bytes);
  EXPECT_EQ(pool->missing_pages({.page_bytes = page_bytes}), 0u);
  EXPECT_TRUE(pool->check_integrity());
}

TEST_F(KvPoolTest, RefusesBudgetsThatCannotBe) {
  auto tiny = KvPool::create(backend, kFormat, page_bytes - 1);
  ASSERT_FALSE(tiny);
  EXPECT_EQ(tiny.error().code, ErrorCode::kInvalidArgument);
  backend.allocations_left = 0;
  auto refused = KvPool::create(backend, kFormat, 10 * page_bytes);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("smaller KV budget"), std::string::npos);
}

TEST_F(KvPoolTest, AuxEntriesAreChargedAndReturned) {
  open(2 * page_bytes + kAux);
  PageId a = take(10), b = take(20);
  EXPECT_EQ(pool->aux_slab(), nullptr);
  ASSERT_TRUE(pool->make_explicit(a));
  EXPECT_EQ(pool->bytes_in_use(), 2 * page_bytes + kAux);
  EXPECT_FALSE(pool->make_explicit(b));
  EXPECT_EQ(pool->missing_pages({.aux = 1}), 1u);
  EXPECT_EQ(pool->missing_pages({.aux = 1, .freed_aux = 1}), 0u);
  EXPECT_EQ(pool->position(a, 3), 13);
  pool->set_slot(a, 3, 99, 0.5f);
  EXPECT_EQ(pool->position(a, 3), 99);
  EXPECT_EQ(pool->bias(a, 3), 0.5f);
  EXPECT_EQ(pool->bias(a, 2), 0);

  pool->make_implicit(a, 7);
  EXPECT_EQ(pool->position(a, 3), 10);
  EXPECT_EQ(pool->bytes_in_use(), 2 * page_bytes);
  EXPECT_TRUE(pool->make_explicit(b));
  EXPECT_EQ(pool->position(b, 3), 23);
  EXPECT_EQ(pool->bias(b, 3), 0);
  EXPECT_TRUE(pool->check_integrity());
}

TEST_F(KvPoolTest, AuxSlabThatCannotBeAllocatedIsExhaustion) {
  backend.allocations_left = 1;
  open(8 * page_bytes);
  PageId page = take();
  EXPECT_FALSE(pool->make_explicit(page));
  EXPECT_EQ(pool->missing_pages({.aux = 1}), 1u);
  EXPECT_EQ(pool->bytes_in_use(), page_bytes);
  EXPECT_TRUE(pool->check_integrity());
}

TEST_F(KvPoolTest, CopyTakesContentsPositionsAndBiases) {
  open(4 * page_bytes);
  PageId a = take(5);
  std::vector<float> numbers(page_bytes / sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  backend.upload(pool->slab() + a * page_bytes, std::as_bytes(std::span(numbers)));
  ASSERT_TRUE(pool->make_explicit(a));
  pool->set_slot(a, 1, 17, 2.0f);
  PageId b = pool->copy(a).value();
  holder.held.push_back(b);
  pool->set_slot(a, 1, 18, 3.0f);
  pool->flush_aux();
  EXPECT_EQ(pool->position(b, 1), 17);
  EXPECT_EQ(pool->bias(b, 1), 2.0f);
  EXPECT_NE(pool->aux(a), pool->aux(b));
  std::vector<float> copied(numbers.size());
  backend.kv_export(kFormat, pool->slab(), b, std::as_writable_bytes(std::span(copied)));
  EXPECT_EQ(copied, numbers);
}

TEST_F(KvPoolTest, FlushUploadsNeighboursTogetherAndOnlyChanges) {
  open(8 * page_bytes);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool->make_explicit(take()));
  pool->flush_aux();
  EXPECT_EQ(backend.uploads, 1);
  pool->set_slot(holder.held[0], 0, 0, 0);  // as it was
  pool->flush_aux();
  EXPECT_EQ(backend.uploads, 1);
  pool->set_slot(holder.held[0], 0, 1, 0);
  pool->set_slot(holder.held[3], 0, 1, 0);
  pool->flush_aux();
  EXPECT_EQ(backend.uploads, 3);
}

TEST_F(KvPoolTest, IntegritySeesWrongReferences) {
  open(4 * page_bytes);
  PageId page = take();
  EXPECT_TRUE(pool->check_integrity());
  pool->ref(page);
  EXPECT_FALSE(pool->check_integrity());
  holder.held.push_back(page);
  EXPECT_TRUE(pool->check_integrity());
  EXPECT_TRUE(pool->shared(page));
  holder.held.clear();
  auto status = pool->check_integrity();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "KV page 0 counts 2 references, its holders 0");
}

TEST_F(KvPoolTest, LayersHaveFormatsOfTheirOwnUnderOneBudget) {
  const KvFormat eight{.dtype = DType::kF16, .head_dim = 64, .page_tokens = 16, .k_bits = 8, .v_bits = 8};
  KvFormat four = eight;
  four.k_bits = four.v_bits = 4;
  const KvFormat layers[] = {eight, four, eight};
  pool = KvPool::create(backend, layers, 2 * eight.page_bytes() + 2 * four.page_bytes()).value();
  pool->add_holder(&holder);
  EXPECT_EQ(pool->format(1), four);
  EXPECT_EQ(pool->format(2), eight);
  EXPECT_EQ(pool->slab(2), pool->slab(0));
  EXPECT_NE(pool->slab(1), pool->slab(0));
  for (int layer = 0; layer < 3; ++layer) holder.held.push_back(pool->allocate(layer, false, layer).value());
  EXPECT_EQ(page_slab(holder.held[1]), 1U);
  EXPECT_EQ(page_index(holder.held[1]), 0U);
  EXPECT_EQ(page_index(holder.held[2]), 1U);
  EXPECT_EQ(pool->bytes(holder.held[1]), four.page_bytes());
  EXPECT_EQ(pool->bytes_in_use(), 2 * eight.page_bytes() + four.page_bytes());
  // There is room for one more of the small ones.
  EXPECT_EQ(pool->allocate(0, false, 0), std::nullopt);
  EXPECT_EQ(pool->missing_pages({.page_bytes = eight.page_bytes()}), 1U);
  holder.held.push_back(pool->copy(holder.held[1]).value());
  EXPECT_EQ(page_slab(holder.held[3]), 1U);
  EXPECT_EQ(pool->position(holder.held[3], 5), 6);
  EXPECT_EQ(pool->missing_pages({.page_bytes = four.page_bytes()}), 1U);
  Status status = pool->check_integrity();
  EXPECT_TRUE(status) << status.error().message;
  for (PageId page : holder.held) pool->unref(page);
  holder.held.clear();
  EXPECT_EQ(pool->bytes_in_use(), 0U);
  EXPECT_TRUE(pool->check_integrity());
}

TEST(KvPoolDeathTest, FreedPagesAreNotTouched) {
  FakeKvBackend backend;
  auto pool = KvPool::create(backend, kFormat, 4 * kFormat.page_bytes()).value();
  PageId page = pool->allocate(0).value();
  pool->unref(page);
  EXPECT_DEATH(pool->unref(page), "references > 0");
  EXPECT_DEATH(pool->ref(page), "references > 0");
}

}  // namespace
}  // namespace godwit
