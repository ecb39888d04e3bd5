#include "kv/budget.h"

#include <gtest/gtest.h>

namespace godwit {
namespace {

const KvFormat kFormat{.dtype = DType::kF16, .head_dim = 64, .page_tokens = 64};
constexpr KvShape kShape{.layers = 4, .kv_heads = 2};

size_t slots(std::string_view text, int32_t tokens) {
  auto budget = KvBudget::parse(text);
  EXPECT_TRUE(budget.has_value()) << text;
  return budget ? budget->slots_per_head(tokens, kShape, kFormat) : 0;
}

TEST(KvBudget, ReadsTokensSharesAndBytes) {
  EXPECT_EQ(slots("4096", 100), 4096U);
  EXPECT_EQ(slots("25%", 1001), 250U);
  EXPECT_EQ(slots("12.5%", 80), 10U);
  EXPECT_EQ(slots("1%", 10), 1U);
  EXPECT_EQ(slots("100%", 777), 777U);
  // A page is 16 KiB and its positions 512 bytes: eight heads with three pages each fit into half a MiB.
  EXPECT_EQ(slots("512KiB", 1 << 20), 3U * 64);
  EXPECT_EQ(KvBudget::parse("64:split=layer")->split, KvBudget::Split::kLayer);
  EXPECT_EQ(KvBudget::parse("64:split=all")->split, KvBudget::Split::kAll);
  EXPECT_EQ(KvBudget::parse("64")->split, KvBudget::Split::kHead);
}

TEST(KvBudget, RefusesNonsense) {
  for (const char* text : {"", "0", "-5", "0%", "101%", "%", "nan%", "12x", "1e400", "64:split=some", "64:share=2",
                           "64:split", "0GiB", "MiB"}) {
    auto budget = KvBudget::parse(text);
    EXPECT_FALSE(budget.has_value()) << text;
  }
}

TEST(KvTrigger, ReadsPromptsChunksAndNumbers) {
  EXPECT_TRUE(KvTrigger::parse("prefill", 512)->prompt_end);
  EXPECT_EQ(KvTrigger::parse("prefill", 512)->every, 0);
  EXPECT_TRUE(KvTrigger::parse("chunk", 512)->prompt_end);
  EXPECT_EQ(KvTrigger::parse("chunk", 512)->every, 512);
  EXPECT_FALSE(KvTrigger::parse("64", 512)->prompt_end);
  EXPECT_EQ(KvTrigger::parse("64", 512)->every, 64);
  for (const char* text : {"", "0", "-1", "never", "64 ", "99999999999"})
    EXPECT_FALSE(KvTrigger::parse(text, 512).has_value()) << text;
}

}  // namespace
}  // namespace godwit
