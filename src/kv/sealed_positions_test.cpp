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

constexpr int kTokens = 320;

// One head of ones, whose tokens stand at 1000 and after.
class SealedPositions : public testing::Test {
 protected:
  void fill(bool demotes) {
    const std::string path = testing::TempDir() + "sealed_positions.gguf";
    ASSERT_TRUE(write_xquant_file({}, path));
    KvFormat format = make_kv_format("xquant:last=0,file=" + path, 64).value();
    format.demotes = demotes;
    backend_ = make_cpu_backend({.threads = 1, .simd = {}}).value();
    pool_ = KvPool::create(*backend_, format, 40 * format.open_format().page_bytes()).value();
    sequence_.emplace(*pool_, KvShape{.layers = 1, .kv_heads = 1});
    ASSERT_TRUE(sequence_->append(kTokens, 1000));
    std::vector<KvSlot> slots;
    sequence_->tail_slots(0, kTokens, slots);
    std::vector<float> numbers(size_t{kTokens} * 64, 1.0f);
    const Tensor rows(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, {kTokens, 1, 64});
    backend_->kv_write({format, pool_->slab(), slots, rows, rows, pool_->open_slab()});
    std::vector<KvSeal> seals;
    sequence_->list_seals(0, seals);
    ASSERT_EQ(seals.size(), demotes ? 0U : 5U);
    if (!demotes) backend_->kv_seal({format, pool_->open_slab(), pool_->slab(), seals, pool_->aux_slab()});
    sequence_->settle();
  }

  void expect_sealed(size_t pages) {
    for (size_t ordinal = 0; ordinal < pages; ++ordinal) {
      std::vector<PageRef> listed;
      sequence_->list_pages(0, 0, ordinal, ordinal + 1, listed);
      ASSERT_FALSE(is_open(listed[0].page));
      std::vector<int32_t> want;
      for (size_t slot = 0; slot < 64; ++slot) want.push_back(sequence_->position(0, 0, ordinal * 64 + slot));
      EXPECT_EQ(stored_positions(*pool_, listed[0].page), want) << ordinal;
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::optional<KvSequence> sequence_;
};

TEST_F(SealedPositions, AreThoseOfTheTokens) {
  fill(false);
  expect_sealed(5);
  std::vector<uint32_t> kept;
  for (uint32_t slot = 3; slot < kTokens; slot += 2 + slot % 7 / 6) kept.push_back(slot);
  ASSERT_TRUE(sequence_->retain(0, 0, kept));
  EXPECT_NE(sequence_->position(0, 0, 60), 1060);
  expect_sealed(kept.size() / 64);
}

TEST_F(SealedPositions, AreThoseOfDemotedTokens) {
  fill(true);
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < 128; ++i) kept.push_back(2 * i + 1);  // the even ones, and those from 256 on, are sealed
  ASSERT_TRUE(sequence_->demote(0, 0, kept));
  EXPECT_EQ(sequence_->position(0, 0, 60), 1120);
  expect_sealed(3);
  kept.clear();
  for (uint32_t i = 0; i < 64; ++i) kept.push_back(192 + 2 * i);
  ASSERT_TRUE(sequence_->demote(0, 0, kept));
  EXPECT_EQ(sequence_->position(0, 0, 192), 1003) << "behind what went first";
  expect_sealed(4);
}

}  // namespace
}  // namespace godwit
