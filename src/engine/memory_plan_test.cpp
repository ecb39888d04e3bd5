// What fits and what is refused, in numbers that can be checked by hand: 2 layers of 2 heads of 32, f16, pages of 64
// tokens make columns of 32 KiB.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace godwit {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kColumn = 32 * kKiB;

ModelConfig config(int64_t context) {
  ModelConfig c;
  c.layers.resize(2);
  c.kv_heads = 2;
  c.head_dim = 32;
  c.context_length = context;
  return c;
}

const KvFormat kFormat{.dtype = DType::kF16, .head_dim = 32, .page_tokens = 64};

Result<MemoryPlan> plan(const MemoryRequest& request, int64_t context) {
  return plan_memory(request, config(context), {&kFormat, 1}, "tiny.gguf");
}

TEST(MemoryPlan, Plans) {
  struct {
    const char* what;
    MemoryRequest request;
    int64_t model_context;
    MemoryPlan want;
  } cases[] = {
      {"plenty: 16 longest sequences", {.memory_bytes = 10 * kGiB}, 1024, {1024, 16 * 16 * kColumn, kColumn}},
      {"a part of a page counts whole", {.memory_bytes = 10 * kGiB}, 65, {65, 16 * 2 * kColumn, kColumn}},
      {"a context asked for",
       {.memory_bytes = 10 * kGiB, .context_tokens = 100},
       1024,
       {100, 16 * 2 * kColumn, kColumn}},
      {"a budget asked for",
       {.memory_bytes = 10 * kGiB, .kv_budget_bytes = 5 * kColumn},
       1024,
       {320, 5 * kColumn, kColumn}},
      {"a budget of just the context asked for",
       {.memory_bytes = 10 * kGiB, .context_tokens = 300, .kv_budget_bytes = 5 * kColumn},
       1024,
       {300, 5 * kColumn, kColumn}},
      {"a budget that is no whole number of pages",
       {.memory_bytes = 10 * kGiB, .kv_budget_bytes = 5 * kColumn + 100},
       1024,
       {320, 5 * kColumn + 100, kColumn}},
      // 10 MiB: 9 usable, 1 for weights and workspace, 8 free, half of it for KV: 128 columns.
      {"half of what is free",
       {.memory_bytes = 10 * kMiB, .weight_bytes = kMiB / 2, .workspace_bytes = kMiB / 2},
       64 * 64,
       {4096, 4 * kMiB, kColumn}},
      {"more than half for one sequence",
       {.memory_bytes = 10 * kMiB, .weight_bytes = kMiB},
       64 * 200,
       {64 * 200, 200 * kColumn, kColumn}},
      {"the model's context is shortened to all that is free",
       {.memory_bytes = 10 * kMiB, .weight_bytes = kMiB},
       64 * 1000,
       {64 * 256, 8 * kMiB, kColumn}},
      {"memory unknown", {.memory_bytes = 0, .weight_bytes = 100 * kGiB}, 64, {64, 16 * kColumn, kColumn}},
  };
  for (const auto& c : cases) {
    auto got = plan(c.request, c.model_context);
    ASSERT_TRUE(got.has_value()) << c.what << ": " << got.error().message;
    EXPECT_EQ(got->context_tokens, c.want.context_tokens) << c.what;
    // Memory is rounded down to whole tenths.
    EXPECT_NEAR(static_cast<double>(got->kv_budget_bytes), static_cast<double>(c.want.kv_budget_bytes), 16) << c.what;
    EXPECT_EQ(got->kv_bytes_per_page_column, c.want.kv_bytes_per_page_column) << c.what;
  }
}

TEST(MemoryPlan, RanksShareSegmentsAndAHostsMemory) {
  // 3 segments of 16 columns over 2 ranks: one has two of them.
  MemoryRequest request{.memory_bytes = 10 * kGiB, .ranks = 2, .context_tokens = 3 * 1024};
  auto planned = plan(request, 1 << 20);
  ASSERT_TRUE(planned.has_value());
  EXPECT_EQ(planned->kv_budget_bytes, 16 * 32 * kColumn);
  // 10 MiB: 9 usable, 1 of weights once, half a MiB of workspace twice: 7 left, 3.5 for each, 112 columns.
  request = {.memory_bytes = 10 * kMiB, .ranks = 2, .ranks_here = 2, .weight_bytes = kMiB, .workspace_bytes = kMiB / 2};
  planned = plan(request, 1 << 20);
  ASSERT_TRUE(planned.has_value());
  EXPECT_EQ(planned->kv_budget_bytes, 112 * kColumn);
  EXPECT_EQ(planned->context_tokens, 14 * 1024);
  request.ranks = request.ranks_here = 1;
  EXPECT_EQ(plan(request, 1 << 20)->context_tokens, 240 * 64);
}

TEST(MemoryPlan, WhereEntriesAreDroppedTheContextMayOutgrowTheMemory) {
  // 64 entries and 64 between two drops are two pages; one more may be begun. A page's positions take 512 bytes.
  const uint64_t needed = 3 * (kColumn + 4 * 512);
  const MemoryRequest capped{.memory_bytes = 10 * kGiB, .kv_budget_bytes = needed, .residence = {0, 128}};
  EXPECT_EQ(plan(capped, 1 << 20)->context_tokens, 1 << 20);
  MemoryRequest less = capped;
  less.kv_budget_bytes = needed - 1;
  EXPECT_EQ(plan(less, 1 << 20)->context_tokens, 64);
  // A quarter of 512 tokens besides makes two pages more.
  MemoryRequest share = capped;
  share.kv_budget_bytes = 5 * (kColumn + 4 * 512);
  share.residence.share = 0.25;
  EXPECT_EQ(plan(share, 1 << 20)->context_tokens, 515);
}

TEST(MemoryPlan, RefusesWithTheNumbers) {
  struct {
    MemoryRequest request;
    int64_t model_context;
    ErrorCode code;
    std::vector<std::string> mentions;
  } cases[] = {
      {{.memory_bytes = 10 * kGiB, .context_tokens = 2000}, 1024, ErrorCode::kInvalidArgument, {"2000", "1024"}},
      {{.memory_bytes = 10 * kGiB, .weight_bytes = 9 * kGiB}, 1024, ErrorCode::kExhausted, {"9.0 GiB", "10.0 GiB"}},
      {{.memory_bytes = 10 * kGiB, .weight_bytes = 8 * kGiB, .workspace_bytes = 2 * kGiB},
       1024,
       ErrorCode::kExhausted,
       {"8.0 GiB", "2.0 GiB"}},
      {{.memory_bytes = 10 * kMiB, .kv_budget_bytes = 20 * kMiB}, 1024, ErrorCode::kExhausted, {"20.0 MiB", "9.0 MiB"}},
      {{.memory_bytes = 10 * kGiB, .context_tokens = 321, .kv_budget_bytes = 5 * kColumn},
       1024,
       ErrorCode::kExhausted,
       {"321 tokens", "192.0 KiB", "160.0 KiB", "320 tokens"}},
      {{.memory_bytes = 10 * kGiB, .kv_budget_bytes = kColumn - 1}, 1024, ErrorCode::kExhausted, {"holds 0 tokens"}},
      {{.memory_bytes = 10 * kMiB, .weight_bytes = 9 * kMiB - 20 * kKiB}, 1024, ErrorCode::kExhausted, {"tokens need"}},
  };
  for (const auto& c : cases) {
    auto got = plan(c.request, c.model_context);
    for (const std::string& mention : c.mentions) io_test::expect_error(got, c.code, mention);
    io_test::expect_error(got, c.code, "tiny.gguf: ");
  }
}

TEST(MemoryPlan, AbsurdModelsDoNotOverflow) {
  ModelConfig huge = config(int64_t{1} << 30);
  huge.layers.resize(4096);
  huge.kv_heads = 4096;
  const KvFormat format{.dtype = DType::kF32, .head_dim = 1024, .page_tokens = 64};
  auto refused = plan_memory({.memory_bytes = kGiB, .context_tokens = 1 << 30}, huge, {&format, 1}, "huge");
  io_test::expect_error(refused, ErrorCode::kExhausted, "16777216.0 TiB");
  auto unknown = plan_memory({}, huge, {&format, 1}, "huge");
  ASSERT_TRUE(unknown.has_value());
  EXPECT_GT(unknown->context_tokens, 0);
  EXPECT_LT(unknown->context_tokens, int64_t{1} << 30);
}

TEST(BytesText, Units) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3 * kGiB), "3.0 GiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16777216.0 TiB");
}

}  // namespace
}  // namespace godwit
