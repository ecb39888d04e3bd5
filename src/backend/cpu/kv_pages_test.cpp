#include <cstring>
#include <limits>

#include "backend/cpu/attention_testing.h"
#include "tensor/half.h"

namespace godwit::testing {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

uint32_t stored_bits(float value, DType dtype) {
  if (dtype == DType::kF16) return float_to_f16(value);
  if (dtype == DType::kBF16) return float_to_bf16(value);
  return std::bit_cast<uint32_t>(value);
}

uint32_t bits_at(const std::vector<std::byte>& bytes, DType dtype, size_t index) {
  uint32_t bits = 0;
  const size_t size = dtype_bytes(dtype, 1);
  std::memcpy(&bits, bytes.data() + index * size, size);
  return bits;
}

std::vector<std::byte> exported(Backend& backend, const KvFormat& format, const Buffer& slab, PageId page) {
  std::vector<std::byte> bytes(format.page_bytes());
  backend.kv_export(format, slab.data(), page, bytes);
  return bytes;
}

class KvPagesTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam(), 2);
};

TEST_P(KvPagesTest, WriteRoundsToNearestEvenAndExportIsCanonical) {
  for (DType dtype : kTypes) {
    const KvFormat format{dtype, 24, 16};
    const Buffer slab = *backend_->allocate(4 * format.page_bytes());
    std::memset(slab.data(), 0, slab.bytes);
    std::mt19937_64 random(3);
    constexpr int64_t kRows = 9;
    std::vector<float> k(kRows * 2 * 24), v(k.size());
    for (float& value : k)
      value = std::bit_cast<float>(static_cast<uint32_t>(random()));  // any bits: NaN, subnormals …
    for (float& value : v) value = static_cast<float>(static_cast<int>(random() % 2000)) * 0x1p-24f;
    k[0] = 65519.996f, k[1] = 65520.0f, k[2] = -0.0f, k[3] = std::numeric_limits<float>::infinity();
    std::vector<KvSlot> slots;
    for (uint32_t row = 0; row < kRows; ++row)
      for (uint32_t head = 0; head < 2; ++head) slots.push_back({head + 1, (row * 5 + head) % 16});
    backend_->kv_write({format, slab.data(), slots, Tensor(k.data(), DType::kF32, {kRows, 2, 24}),
                        Tensor(v.data(), DType::kF32, {kRows, 2, 24})});
    const std::vector<std::byte> pages[] = {exported(*backend_, format, slab, 1), exported(*backend_, format, slab, 2)};
    for (size_t i = 0; i < slots.size(); ++i)
      for (size_t d = 0; d < 24; ++d) {
        const size_t at = slots[i].slot * 24 + d;
        ASSERT_EQ(bits_at(pages[i % 2], dtype, at), stored_bits(k[i * 24 + d], dtype)) << dtype_name(dtype);
        ASSERT_EQ(bits_at(pages[i % 2], dtype, 16 * 24 + at), stored_bits(v[i * 24 + d], dtype)) << dtype_name(dtype);
      }
    for (PageId untouched : {0u, 3u})
      for (std::byte byte : exported(*backend_, format, slab, untouched)) ASSERT_EQ(byte, std::byte{0});
  }
}

TEST_P(KvPagesTest, ImportRestoresAPageSomewhereElse) {
  for (DType dtype : kTypes) {
    TestCache cache(*backend_, {{dtype, 40, 32}, 1, 96, false});
    const Queries queries(cache, 3, 2);
    const Answer before = attend(*backend_, cache, queries, cache.plan(3));
    std::vector<std::vector<std::byte>> pages;
    for (const PageRef& ref : cache.refs[0]) pages.push_back(exported(*backend_, cache.format(), cache.slab, ref.page));
    std::memset(cache.slab.data(), 0xff, cache.slab.bytes);
    for (size_t i = 0; i < pages.size(); ++i) {
      PageRef& ref = cache.refs[0][i];
      ref.page = (ref.page + 1) % 3;
      backend_->kv_import(cache.format(), cache.slab.data(), ref.page, pages[i]);
      EXPECT_EQ(exported(*backend_, cache.format(), cache.slab, ref.page), pages[i]);
    }
    EXPECT_EQ(attend(*backend_, cache, queries, cache.plan(3)), before);
  }
}

TEST_P(KvPagesTest, MovesHappenInOrder) {
  for (DType dtype : kTypes) {
    const TestCache cache(*backend_, {{dtype, 24, 16}, 1, 32, false});
    const PageId a = cache.refs[0][0].page, b = cache.refs[0][1].page;
    const auto old_a = exported(*backend_, cache.format(), cache.slab, a);
    const auto old_b = exported(*backend_, cache.format(), cache.slab, b);
    const KvMove moves[] = {{{a, 3}, {b, 5}}, {{b, 5}, {b, 6}}, {{b, 7}, {a, 3}}, {{a, 9}, {a, 9}}};
    backend_->kv_move(cache.format(), cache.slab.data(), moves);
    const auto new_a = exported(*backend_, cache.format(), cache.slab, a);
    const auto new_b = exported(*backend_, cache.format(), cache.slab, b);
    for (size_t slot = 0; slot < 16; ++slot)
      for (size_t i = 0; i < 48; ++i) {  // K, then V
        auto at = [&](size_t s) { return (i / 24) * 16 * 24 + s * 24 + i % 24; };
        ASSERT_EQ(bits_at(new_a, dtype, at(slot)),
                  slot == 3 ? bits_at(old_b, dtype, at(7)) : bits_at(old_a, dtype, at(slot)));
        ASSERT_EQ(bits_at(new_b, dtype, at(slot)),
                  slot == 5 || slot == 6 ? bits_at(old_a, dtype, at(3)) : bits_at(old_b, dtype, at(slot)));
      }
  }
}

TEST_P(KvPagesTest, CopiedPagesAreEqual) {
  const TestCache cache(*backend_, {{DType::kF16, 24, 16}, 1, 32, false});
  const PageId a = cache.refs[0][0].page, b = cache.refs[0][1].page;
  backend_->kv_copy_page(cache.format(), cache.slab.data(), a, b);
  EXPECT_EQ(exported(*backend_, cache.format(), cache.slab, b), exported(*backend_, cache.format(), cache.slab, a));
}

INSTANTIATE_TEST_SUITE_P(Targets, KvPagesTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
