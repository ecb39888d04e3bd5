#include "kv/prefix_index.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "kv/fake_kv_backend.h"

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF32, .head_dim = 1, .page_tokens = 4};
constexpr KvShape kShape{.layers = 2, .kv_heads = 2};
constexpr size_t kColumn = 4;  // pages of one block

class PrefixIndexTest : public testing::Test {
 protected:
  using Tokens = std::vector<int32_t>;

  std::unique_ptr<KvSequence> computed(std::span<const int32_t> tokens, const std::string& space = "a") {
    auto sequence = std::make_unique<KvSequence>(*pool, kShape);
    const size_t found = index.share(space, tokens, *sequence);
    EXPECT_TRUE(sequence->append(static_cast<int>(tokens.size() - found)));
    return sequence;
  }
  static Tokens counting(int from, size_t count) {
    Tokens tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = from + static_cast<int>(i);
    return tokens;
  }
  void check() const {
    const Status status = pool->check_integrity();
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }

  FakeKvBackend backend;
  std::unique_ptr<KvPool> pool = KvPool::create(backend, kFormat, 400 * kFormat.page_bytes()).value();
  PrefixIndex index{*pool, kShape, {.attention_tokens = 100}};
};

TEST_F(PrefixIndexTest, ForgettingAllLeavesSequencesTheirPages) {
  const Tokens text = counting(0, 40), other = counting(100, 20);
  auto used = computed(text);
  index.remember("a", text, *used);
  index.remember("a", other, *computed(other));
  EXPECT_EQ(index.releasable_bytes(), 5 * kColumn * pool->format().page_bytes());  // of what nobody uses
  index.forget_all();
  EXPECT_EQ(index.blocks(), 0u);
  EXPECT_EQ(index.releasable_bytes(), 0u);
  EXPECT_EQ(pool->pages_in_use(), 10 * kColumn);
  EXPECT_EQ(index.matched("a", text), 0u);
  check();
}

TEST_F(PrefixIndexTest, FindsWholeBlocksOfItsOwnSpace) {
  const Tokens text = counting(0, 11);
  auto first = computed(text);
  index.remember("a", text, *first);
  EXPECT_EQ(index.blocks(), 2u);
  EXPECT_EQ(index.matched("a", text), 8u);
  EXPECT_EQ(index.matched("a", std::span(text).first(7)), 4u);
  EXPECT_EQ(index.matched("b", text), 0u);
  Tokens other = text;
  other[6] = 99;
  EXPECT_EQ(index.matched("a", other), 4u);
  const size_t before = pool->pages_in_use();
  auto second = computed(text);
  EXPECT_EQ(pool->pages_in_use(), before + kColumn);  // the three tokens after the shared blocks
  EXPECT_EQ(second->next_position(), 11);
  EXPECT_EQ(second->position(1, 1, 10), 10);
  EXPECT_TRUE(second->check_integrity().has_value());
  check();
}

TEST_F(PrefixIndexTest, KeepsPagesAfterTheirSequencesAndFreesThemWhenAsked) {
  const Tokens text = counting(0, 16);
  {
    auto sequence = computed(text);
    index.remember("a", text, *sequence);
  }
  EXPECT_EQ(pool->pages_in_use(), 4 * kColumn);
  EXPECT_EQ(index.releasable_bytes(), 4 * kColumn * pool->format().page_bytes());
  EXPECT_EQ(index.release(1), kColumn);  // a block is the least that goes, and the last one goes first
  EXPECT_EQ(index.matched("a", text), 12u);
  index.clear();
  EXPECT_EQ(pool->pages_in_use(), 0u);
  EXPECT_EQ(index.blocks(), 0u);
  check();
}

TEST_F(PrefixIndexTest, WhatSequencesUseIsNotReleased) {
  const Tokens text = counting(0, 16);
  auto sequence = computed(text);
  index.remember("a", text, *sequence);
  EXPECT_EQ(index.releasable_bytes(), 0u);
  EXPECT_EQ(index.release(1), 0u);
  EXPECT_EQ(index.matched("a", text), 16u);
  check();
}

TEST_F(PrefixIndexTest, RecentAndCostlyBlocksStayLonger) {
  const Tokens old = counting(0, 4), older = counting(100, 4), recent = counting(300, 4), deep = counting(200, 40);
  for (const Tokens& text : {deep, old, older}) index.remember("a", text, *computed(text));
  index.release(1);
  EXPECT_EQ(index.matched("a", old) + index.matched("a", older), 4u);  // the costly one stays
  index.remember("a", recent, *computed(recent));
  index.release(1);
  EXPECT_EQ(index.matched("a", old) + index.matched("a", older), 0u);  // and the recent one, though as cheap
  EXPECT_EQ(index.matched("a", recent), 4u);
  EXPECT_EQ(index.matched("a", deep), 40u);
}

// Against a plain list of what was remembered: everything found was remembered, pages are those of the first who
// computed them, and nothing leaks.
TEST_F(PrefixIndexTest, RandomWalk) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  std::vector<std::pair<Tokens, std::unique_ptr<KvSequence>>> live;
  for (int round = 0; round < 3000; ++round) {
    const std::string space = below(4) == 0 ? "b" : "a";
    Tokens tokens(static_cast<size_t>(1 + below(40)));
    for (int32_t& token : tokens) token = below(8) == 0 ? 1 : 0;  // many common prefixes
    auto sequence = std::make_unique<KvSequence>(*pool, kShape);
    const size_t found = index.share(space, tokens, *sequence);
    ASSERT_EQ(found, index.matched(space, tokens));
    ASSERT_EQ(static_cast<size_t>(sequence->next_position()), found);
    const auto rest = static_cast<int>(tokens.size() - found);
    if (KvOutcome outcome = sequence->append(rest); !outcome) {
      const size_t could = index.releasable_bytes() / pool->format().page_bytes(),
                   freed = index.release(outcome.missing_pages);
      ASSERT_TRUE(freed >= outcome.missing_pages || freed == could);
      if (!sequence->append(rest)) {
        sequence.reset();
        live.erase(live.begin() + below(static_cast<int>(live.size())));
        continue;
      }
    }
    index.remember(space, tokens, *sequence);
    ASSERT_EQ(index.matched(space, tokens), tokens.size() / 4 * 4);
    if (below(3) == 0) live.emplace_back(tokens, std::move(sequence));
    if (live.size() > 6) live.erase(live.begin() + below(7));
    if (round % 50 == 0) check();
  }
  live.clear();
  check();
  index.clear();
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

}  // namespace
}  // namespace godwit
