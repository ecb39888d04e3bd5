#include <cstring>
#include <limits>

#include "backend/cpu/attention_testing.h"
#include "backend/kv_codes.h"
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

std::vector<KvFormat> formats(int head_dim, int page_tokens) {
  std::vector<KvFormat> all = code_formats(head_dim, page_tokens);
  for (DType dtype : kTypes) all.push_back({dtype, head_dim, page_tokens});
  return all;
}

// Canonical codes: [page_tokens, head_dim], of 4 bits two to a byte; then scales, then middles.
TEST_P(KvPagesTest, CodesAreThoseOfTheEncoderAndExportIsCanonical) {
  for (const KvFormat& format : code_formats(64, 16)) {
    SCOPED_TRACE(format_name(format));
    const Buffer slab = *backend_->allocate(2 * format.page_bytes());
    std::memset(slab.data(), 0xff, slab.bytes);
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> numbers[2] = {std::vector<float>(16 * 64), std::vector<float>(16 * 64)};
    for (auto& half : numbers)
      for (float& value : half) value = normal(random) + 1;
    std::vector<KvSlot> slots;
    for (uint32_t row = 0; row < 16; ++row) slots.push_back({1, row * 5 % 16});
    backend_->kv_write({format, slab.data(), slots, Tensor(numbers[0].data(), DType::kF32, {16, 1, 64}),
                        Tensor(numbers[1].data(), DType::kF32, {16, 1, 64})});
    const auto page = exported(*backend_, format, slab, 1);
    size_t begin = 0;
    for (size_t half = 0; half < 2; ++half) {
      const int bits = half == 0 ? format.k_bits : format.v_bits;
      const size_t line = 64 * static_cast<size_t>(bits) / 8;
      for (size_t row = 0; row < 16; ++row) {
        std::vector<uint8_t> codes(64);
        const KvCodeScale scale = kv_encode(bits, numbers[half].data() + row * 64, 64, codes.data());
        const size_t slot = slots[row].slot;
        for (size_t d = 0; d < 64; ++d) {
          const auto byte = static_cast<uint8_t>(page[begin + slot * line + d * static_cast<size_t>(bits) / 8]);
          ASSERT_EQ(bits == 8 ? byte : d % 2 == 0 ? byte & 15 : byte >> 4, codes[d]) << half << " " << slot << " " << d;
        }
        uint16_t stored[2];
        std::memcpy(&stored[0], page.data() + begin + 16 * line + slot * 2, 2);
        std::memcpy(&stored[1], page.data() + begin + 16 * line + (16 + slot) * 2, 2);
        ASSERT_EQ(stored[0], scale.scale);
        ASSERT_EQ(stored[1], scale.middle);
      }
      begin += 16 * line + 2 * 16 * 2;
    }
    ASSERT_EQ(begin, page.size());
    for (std::byte byte : exported(*backend_, format, slab, 0)) ASSERT_EQ(byte, std::byte{0xff});
  }
}

// Two threads write neighbouring slots of one page, which share nothing.
TEST_P(KvPagesTest, ParallelWritesOfCodesAreThoseOfOneThread) {
  const auto alone = cpu_backend(GetParam(), 1);
  for (const KvFormat& format : code_formats(32, 256)) {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(250 * 32);
    for (float& value : numbers) value = normal(random);
    std::vector<KvSlot> slots;
    for (uint32_t row = 0; row < 250; ++row) slots.push_back({0, row + 3});
    const Tensor rows(numbers.data(), DType::kF32, {250, 1, 32});
    std::vector<std::vector<std::byte>> pages;
    for (Backend* backend : {backend_.get(), alone.get()}) {
      const Buffer slab = *backend->allocate(format.page_bytes());
      std::memset(slab.data(), 0, slab.bytes);
      backend->kv_write({format, slab.data(), slots, rows, rows});
      pages.push_back(exported(*backend, format, slab, 0));
    }
    EXPECT_EQ(pages[0], pages[1]) << format_name(format);
  }
}

TEST_P(KvPagesTest, ImportRestoresAPageSomewhereElse) {
  for (const KvFormat& format : formats(64, 32)) {
    TestCache cache(*backend_, {format, 1, 96, false});
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
  for (const KvFormat& format : formats(32, 16)) {
    SCOPED_TRACE(format_name(format));
    const TestCache cache(*backend_, {format, 1, 32, false});
    const PageId a = cache.refs[0][0].page, b = cache.refs[0][1].page;
    auto slot_of = [&](PageId page, uint32_t slot) {
      std::vector<float> numbers(64);
      const KvSlot place{page, slot};
      backend_->kv_read({format,
                         cache.slab.data(),
                         {&place, 1},
                         Tensor(numbers.data(), DType::kF32, {1, 32}),
                         Tensor(numbers.data() + 32, DType::kF32, {1, 32})});
      return numbers;
    };
    auto page_of = [&](PageId page) {
      std::vector<std::vector<float>> slots;
      for (uint32_t slot = 0; slot < 16; ++slot) slots.push_back(slot_of(page, slot));
      return slots;
    };
    auto want_a = page_of(a), want_b = page_of(b);
    const KvMove moves[] = {{{a, 3}, {b, 5}}, {{b, 5}, {b, 6}}, {{b, 7}, {a, 3}}, {{a, 9}, {a, 9}}};
    backend_->kv_move(format, cache.slab.data(), cache.slab.data(), moves);
    want_b[5] = want_b[6] = want_a[3];
    want_a[3] = want_b[7];
    EXPECT_EQ(page_of(a), want_a);
    EXPECT_EQ(page_of(b), want_b);
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
