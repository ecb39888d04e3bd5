#include "kv/prefix_states.h"

#include <numeric>

#include <gtest/gtest.h>

#include "kv/fake_kv_backend.h"
#include "kv/prefix_index.h"

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF32, .head_dim = 1, .page_tokens = 4};
constexpr KvShape kShape{.layers = 2, .kv_heads = 2};

// A policy that drops nothing here: what states hold is the whole text, and its blocks are in an index, too.
class PrefixStatesTest : public testing::Test {
 protected:
  using Tokens = std::vector<int32_t>;

  static std::shared_ptr<const Tokens> counting(int from, size_t count) {
    auto tokens = std::make_shared<Tokens>(count);
    std::iota(tokens->begin(), tokens->end(), from);
    return tokens;
  }
  // Reads a prompt in pieces of 8 and leaves a state after each.
  std::unique_ptr<KvSequence> read(const std::shared_ptr<const Tokens>& prompt, std::string_view space = "a") {
    auto sequence = std::make_unique<KvSequence>(*pool, kShape);
    const KvRetention retention(rules, *sequence);
    for (size_t end = 8; end <= prompt->size(); end += 8) {
      EXPECT_TRUE(sequence->append(8));
      index.remember(space, std::span(*prompt).first(end), *sequence);
      states.remember(space, prompt, end, *sequence, retention);
    }
    return sequence;
  }
  size_t found(const std::shared_ptr<const Tokens>& prompt, size_t tokens, std::string_view space = "a") const {
    const auto* state = states.find(space, std::span(*prompt).first(tokens));
    return state == nullptr ? 0 : state->tokens;
  }
  void check() const {
    const Status status = pool->check_integrity();
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }

  FakeKvBackend backend;
  std::unique_ptr<KvPool> pool = KvPool::create(backend, kFormat, 400 * kFormat.page_bytes()).value();
  std::shared_ptr<const KvRetentionRules> rules =
      KvRetentionRules::make({.policy = "streaming", .budget = "100", .trigger = "chunk", .prefill_chunk = 8}, kShape,
                             kFormat, 2)
          .value();
  PrefixIndex index{*pool, kShape, {.attention_tokens = 100}};
  PrefixStates states{*pool, {.attention_tokens = 100, .piece_tokens = 8, .most_bytes_beside = 0}};
};

TEST_F(PrefixStatesTest, FindsTheLongestOfItsOwnSpace) {
  const auto text = counting(0, 24);
  (void)read(text);
  EXPECT_EQ(states.size(), 3u);
  EXPECT_EQ(found(text, 24), 24u);
  EXPECT_EQ(found(text, 23), 16u);
  EXPECT_EQ(found(text, 7), 0u);
  EXPECT_EQ(found(text, 24, "b"), 0u);
  auto other = std::make_shared<Tokens>(*text);
  (*other)[12] = 99;
  EXPECT_EQ(found(other, 24), 8u);
  (void)read(text);
  EXPECT_EQ(states.size(), 3u);  // the same ones
  check();
}

TEST_F(PrefixStatesTest, PagesThatAnIndexHasTooAreReleasable) {
  (void)read(counting(0, 24));
  const size_t all = 6 * 4 * kFormat.page_bytes();
  EXPECT_EQ(pool->bytes_in_use(), all);
  EXPECT_EQ(states.releasable_bytes() + index.releasable_bytes(), all);
  EXPECT_EQ(states.release(1), 0u);  // the index has them still, ...
  EXPECT_EQ(states.size(), 0u);
  EXPECT_EQ(index.release(1), 4u);  // ... and nothing keeps it from giving them up
  check();
}

TEST_F(PrefixStatesTest, WhatASequenceUsesIsNotReleased) {
  const auto text = counting(0, 24);
  const auto sequence = read(text);
  index.forget_all();
  EXPECT_EQ(states.releasable_bytes(), 0u);
  EXPECT_EQ(states.release(1), 0u);
  EXPECT_EQ(states.size(), 3u);
  states.forget_all();
  EXPECT_EQ(states.size(), 0u);
  EXPECT_EQ(pool->pages_in_use(), 6u * 4);
  check();
}

// Cost counts, and so does what became of others since.
TEST_F(PrefixStatesTest, TheLeastWorthGoesFirst) {
  const auto add = [&](const std::shared_ptr<const Tokens>& text) {
    KvSequence sequence(*pool, kShape);
    EXPECT_TRUE(sequence.append(static_cast<int>(text->size())));
    states.remember("a", text, text->size(), sequence, KvRetention(rules, sequence));
  };
  const auto costly = counting(0, 16), first = counting(100, 8), second = counting(200, 8), third = counting(300, 8);
  add(costly);
  add(first);
  EXPECT_EQ(states.release(1), 2u * 4);
  EXPECT_EQ(found(first, 8), 0u);
  add(second);
  EXPECT_EQ(states.release(1), 2u * 4);
  EXPECT_EQ(found(second, 8), 0u);
  add(third);
  EXPECT_EQ(states.release(1), 4u * 4);
  EXPECT_EQ(found(costly, 16), 0u);
  EXPECT_EQ(found(third, 8), 8u);
  check();
}

}  // namespace
}  // namespace godwit
