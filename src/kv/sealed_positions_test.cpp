// Sealing tells a form where the tokens of a page stand, also once some were dropped.
#include <numeric>

#include <gtest/gtest.h>

#include "kv/codec.h"
#include "kv/codec_tables_testing.h"

namespace godwit {
namespace {

// First positions and steps, as LatentForm stores them.
std::vector<int32_t> stored_positions(const KvPool& pool, PageId page) {
  std::vector<std::byte> bytes(pool.format().page_bytes());
  pool.backend().kv_export(pool.format(), pool.slab(), page_index(page), bytes);
  const std::byte* at = bytes.data() + pool.format().sealed_form->head_bytes();
  std::vector<int32_t> positions(64);
  std::memcpy(positions.data(), at, sizeof(int32_t));
  for (size_t t = 1; t < 64; ++t) positions[t] = positions[t - 1] + static_cast<int32_t>(at[sizeof(int32_t) + t]);
  return positions;
}

TEST(SealedPositions, AreThoseOfTheTokens) {
  const std::string path = testing::TempDir() + "sealed_positions.gguf";
  ASSERT_TRUE(write_xquant_file({}, path));
  const KvFormat format = make_kv_format("xquant:last=0,file=" + path, 64).value();
  const auto backend = make_cpu_backend({.threads = 1, .simd = {}}).value();
  const auto pool = KvPool::create(*backend, format, 40 * format.open_format().page_bytes()).value();
  KvSequence sequence(*pool, {.layers = 1, .kv_heads = 1});
  constexpr int kTokens = 320;
  ASSERT_TRUE(sequence.append(kTokens, 1000));
  std::vector<KvSlot> slots;
  sequence.tail_slots(0, kTokens, slots);
  std::vector<float> numbers(size_t{kTokens} * 64, 1.0f);
  const Tensor rows(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, {kTokens, 1, 64});
  backend->kv_write({format, pool->slab(), slots, rows, rows, pool->open_slab()});
  std::vector<KvSeal> seals;
  sequence.list_seals(0, seals);
  ASSERT_EQ(seals.size(), 5U);
  backend->kv_seal({format, pool->open_slab(), pool->slab(), seals, pool->aux_slab()});
  sequence.settle();

  const auto expect = [&](size_t ordinal) {
    std::vector<PageRef> pages;
    sequence.list_pages(0, 0, ordinal, ordinal + 1, pages);
    ASSERT_FALSE(is_open(pages[0].page));
    std::vector<int32_t> want;
    for (size_t slot = 0; slot < 64; ++slot) want.push_back(sequence.position(0, 0, ordinal * 64 + slot));
    EXPECT_EQ(stored_positions(*pool, pages[0].page), want) << ordinal;
  };
  for (size_t ordinal = 0; ordinal < 5; ++ordinal) expect(ordinal);
  std::vector<uint32_t> kept;
  for (uint32_t slot = 3; slot < kTokens; slot += 2 + slot % 7 / 6) kept.push_back(slot);
  ASSERT_TRUE(sequence.retain(0, 0, kept));
  EXPECT_NE(sequence.position(0, 0, 60), 1060);
  for (size_t ordinal = 0; ordinal < kept.size() / 64; ++ordinal) expect(ordinal);
}

}  // namespace
}  // namespace godwit
