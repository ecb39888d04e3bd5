// One matrix for all policies: budgets are exact, what is kept is sound and the same every time, and nothing is dropped
// where everything fits.
#include "kv/retention.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <unistd.h>

#include "kv/toy_model.h"

namespace godwit::kv_test {

// A file of gates under a fixed name, because names of tests hold it; whole at any time, because processes that run
// tests at the same time all write it.
std::string gates_file(const std::string& name, const std::string& gates) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  const std::string own = fmt::format("{}.{}", path.string(), getpid());
  std::ofstream(own) << R"({"format": "godwit.duo-gates.1", "sinks": 2, "recent": 8, "gates": )" << gates << "}";
  std::filesystem::rename(own, path);
  return path.string();
}

std::vector<std::string> policy_specs() {
  const std::string gates = gates_file("duo_gates_of_retention_test.json", "[[1, 0], [0.4, 0.6], [0, 0]]");
  std::vector<std::string> specs;
  for (const KvPolicyRow* row : all_kv_policies()) {
    if (row->demotes) continue;  // demote_test.cpp
    std::string spec(row->info.name);
    for (const MethodParam& param : row->info.params) {
      auto set = [&](const std::string& value) {
        spec += fmt::format("{}{}={}", spec.find(':') == std::string::npos ? ":" : ",", param.name, value);
      };
      if (param.name == "window") set("8");
      if (param.name == "recent" && param.default_value.find('.') == std::string_view::npos) set("4");
      if (param.name == "gates") set(gates);
      if (param.name == "base") set("snapkv:window=8");
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

namespace {

size_t total(const Toy& toy) {
  size_t slots = 0;
  for (const auto& head : toy.positions()) slots += head.size();
  return slots;
}

std::vector<std::string> specs_where(bool (*wanted)(const std::string& spec)) {
  std::vector<std::string> specs = policy_specs();
  std::erase_if(specs, [&](const std::string& spec) { return !wanted(spec); });
  return specs;
}
// Gates are a budget of their own; a neutral file of them is tested with the engine.
bool has_budget(const std::string& spec) {
  return spec.find("gates=") == std::string::npos;
}
// Sums over all queries round by chunks.
bool sums_nothing(const std::string& spec) {
  return make_kv_policy(spec, kToyShape)->policy->needs().queries != KvNeeds::Queries::kAll;
}

// Every policy with numbers, and with codes of pages that are sealed.
struct Case {
  std::string policy;
  const char* name;
  KvFormat format;
};
std::vector<Case> cases(const std::vector<std::string>& policies) {
  KvFormat by_dim{.dtype = DType::kF16, .head_dim = 64, .page_tokens = 16, .k_bits = 2, .v_bits = 4};
  by_dim.k_by_dim = by_dim.seals = true;
  by_dim.open_last = 16;
  KvFormat by_token{.dtype = DType::kF16, .head_dim = 32, .page_tokens = 16, .k_bits = 4, .v_bits = 4};
  by_token.seals = true;
  by_token.open_first = 16;
  KvFormat sparse{.dtype = DType::kF16, .head_dim = 32, .page_tokens = 16, .k_keep = 16, .v_keep = 10, .seals = true};
  std::vector<Case> all;
  for (const std::string& policy : policies)
    for (const Case& one : {Case{policy, "numbers", kToyFormat}, Case{policy, "sealed_by_dim", by_dim},
                            Case{policy, "sealed_by_token", by_token}, Case{policy, "sparse", sparse}})
      all.push_back(one);
  return all;
}

class RetentionTest : public testing::TestWithParam<Case> {};
class BudgetedTest : public testing::TestWithParam<Case> {};
class NotSummingTest : public testing::TestWithParam<Case> {};

TEST_P(RetentionTest, BudgetsAreExact) {
  constexpr size_t kHeads = 6;
  for (const char* budget : {"48", "25%", "40KiB"}) {
    for (const char* trigger : {"prefill", "chunk", "24"}) {
      for (int chunk : {64, 100}) {
        SCOPED_TRACE(fmt::format("{} {} chunk {}", budget, trigger, chunk));
        Toy toy({.policy = GetParam().policy, .budget = budget, .trigger = trigger, .prefill_chunk = chunk}, 1,
                kToyBytes, GetParam().format);
        const auto allowed = [&] {
          return toy.rules().budget.slots_per_head(toy.sequence().next_position(), kToyShape, GetParam().format);
        };
        const bool bounded = toy.rules().most_between() > 0;
        for (int done = 0; done < 300; done += chunk) {
          ASSERT_TRUE(toy.step(std::min(chunk, 300 - done), done + chunk >= 300));
          if (toy.rules().trigger.prompt_end && (bounded || done + chunk >= 300)) {
            EXPECT_LE(total(toy), kHeads * allowed());
          }
          EXPECT_LE(total(toy), kHeads * (bounded ? allowed() + static_cast<size_t>(chunk) : 300));
        }
        for (int i = 0; i < 130; ++i) {
          ASSERT_TRUE(toy.step(1));
          if (bounded) {
            EXPECT_LE(total(toy), kHeads * (allowed() + static_cast<size_t>(chunk)));
          }
        }
        // Bytes are what is left, page for page.
        size_t pages = 0;
        for (const auto& head : toy.positions()) pages += (head.size() + 15) / 16;
        EXPECT_EQ(toy.pool().pages_in_use(), pages);
        EXPECT_LT(total(toy), kHeads * 430);
      }
    }
  }
}

TEST_P(RetentionTest, BytesHoldAtTheEndOfAPromptWhateverTheSplit) {
  for (const char* budget : {"40KiB", "40KiB:split=layer", "40KiB:split=all"}) {
    auto rules = KvRetentionRules::make({.policy = GetParam().policy, .budget = budget, .trigger = ""}, kToyShape,
                                        GetParam().format, kToyHeads);
    if (!rules) {
      EXPECT_NE(rules.error().message.find("heads cannot compete"), std::string::npos) << rules.error().message;
      continue;
    }
    Toy toy({.policy = GetParam().policy, .budget = budget, .trigger = "prefill"}, 1, kToyBytes, GetParam().format);
    toy.prompt(300, 64);
    EXPECT_LE(toy.pool().bytes_in_use(), 40U << 10) << budget;
    EXPECT_GT(toy.pool().bytes_in_use(), 20U << 10) << budget;
  }
}

TEST_P(BudgetedTest, AWholeBudgetDropsNothing) {
  Toy toy({.policy = GetParam().policy, .budget = "100%", .trigger = "chunk", .prefill_chunk = 50}, 1, kToyBytes,
          GetParam().format);
  toy.prompt(170, 50);
  for (const auto& head : toy.positions()) EXPECT_EQ(head.size(), 170U);
  EXPECT_EQ(toy.pool().aux_in_use(), 0U);
}

TEST_P(RetentionTest, TheSameEveryTimeOnAnyNumberOfThreads) {
  std::vector<std::vector<int32_t>> first;
  for (int threads : {1, 3, 1}) {
    Toy toy({.policy = GetParam().policy, .budget = "25%", .trigger = "chunk", .prefill_chunk = 64}, threads, kToyBytes,
            GetParam().format);
    toy.prompt(260, 64);
    if (first.empty()) first = toy.positions();
    EXPECT_EQ(toy.positions(), first) << threads;
  }
}

TEST_P(NotSummingTest, ChunksDoNotMatterAtTheEndOfAPrompt) {
  std::vector<std::vector<int32_t>> first;
  for (int chunk : {300, 64, 7}) {
    Toy toy({.policy = GetParam().policy, .budget = "25%", .trigger = "prefill", .prefill_chunk = chunk}, 1, kToyBytes,
            GetParam().format);
    toy.prompt(300, chunk);
    if (first.empty()) first = toy.positions();
    EXPECT_EQ(toy.positions(), first) << chunk;
  }
}

TEST_P(RetentionTest, ForksGoTheirOwnWays) {
  const KvRetentionOptions options{.policy = GetParam().policy, .budget = "32", .trigger = "40", .prefill_chunk = 40};
  Toy toy(options, 1, kToyBytes, GetParam().format), alone(options, 1, kToyBytes, GetParam().format);
  for (Toy* each : {&toy, &alone}) each->prompt(120, 40);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(toy.step(1) && alone.step(1));
  {
    Toy fork(toy);
    EXPECT_EQ(fork.positions(), toy.positions());
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(fork.step(1) && alone.step(1));
    EXPECT_EQ(fork.positions(), alone.positions());
    EXPECT_NE(fork.positions(), toy.positions());
  }
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(toy.step(1));
  EXPECT_EQ(toy.positions(), alone.positions());
}

TEST_P(RetentionTest, ComputedAnewAfterForgettingItIsTheSame) {
  Toy toy({.policy = GetParam().policy, .budget = "25%", .trigger = "prefill"}, 1, kToyBytes, GetParam().format);
  toy.prompt(200, 64);
  const auto before = toy.positions();
  EXPECT_EQ(toy.retention().shortest_exact(), 200);
  toy.truncate(0);
  EXPECT_EQ(toy.retention().shortest_exact(), 0);
  toy.prompt(200, 64);
  EXPECT_EQ(toy.positions(), before);
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  return fmt::format("{}_{}", test.param.policy.substr(0, test.param.policy.find(':')), test.param.name);
}
INSTANTIATE_TEST_SUITE_P(Policies, RetentionTest, testing::ValuesIn(cases(policy_specs())), name_of);
INSTANTIATE_TEST_SUITE_P(Policies, BudgetedTest, testing::ValuesIn(cases(specs_where(has_budget))), name_of);
INSTANTIATE_TEST_SUITE_P(Policies, NotSummingTest, testing::ValuesIn(cases(specs_where(sums_nothing))), name_of);

TEST(Retention, TheWindowIsTheLastQueriesOfTheCacheAsItIs) {
  Toy toy({.policy = "snapkv:window=8,kernel=1", .budget = "40", .trigger = "prefill", .prefill_chunk = 64});
  toy.prompt(130, 64);
  for (int layer = 0; layer < kToyShape.layers; ++layer) {
    for (int head = 0; head < kToyShape.kv_heads; ++head) {
      std::vector<std::pair<double, int32_t>> votes;
      for (int32_t p = 0; p < 122; ++p) votes.emplace_back(0, p);
      for (int32_t query = 122; query < 130; ++query) {
        const auto weights = Toy::weights(layer, head, query);
        for (auto& [vote, p] : votes) vote += weights[static_cast<size_t>(p)];
      }
      std::sort(votes.rbegin(), votes.rend());
      std::vector<int32_t> want;
      for (size_t i = 0; i < 32; ++i) want.push_back(votes[i].second);
      for (int32_t p = 122; p < 130; ++p) want.push_back(p);
      std::sort(want.begin(), want.end());
      EXPECT_EQ(toy.positions(layer, head), want);
    }
  }
}

TEST(Retention, H2oAddsUpWhatEveryQueryAttendsTo) {
  Toy toy({.policy = "h2o:recent=0.25", .budget = "40", .trigger = "prefill", .prefill_chunk = 64});
  toy.prompt(130, 64);
  std::vector<std::pair<double, int32_t>> sums;
  for (int32_t p = 0; p < 130; ++p) sums.emplace_back(0, p);
  for (int32_t query = 0; query < 130; ++query) {
    const auto weights = Toy::weights(1, 1, query);
    for (size_t p = 0; p < weights.size(); ++p) sums[p].first += weights[p];
  }
  sums.resize(120);  // ten are the newest
  std::sort(sums.rbegin(), sums.rend());
  std::vector<int32_t> want;
  for (size_t i = 0; i < 30; ++i) want.push_back(sums[i].second);
  for (int32_t p = 120; p < 130; ++p) want.push_back(p);
  std::sort(want.begin(), want.end());
  EXPECT_EQ(toy.positions(1, 1), want);
}

TEST(Retention, StreamingKeepsTheFirstAndTheNewest) {
  Toy toy({.policy = "streaming:sinks=3", .budget = "10", .trigger = "chunk", .prefill_chunk = 16});
  toy.prompt(100, 16);
  EXPECT_EQ(toy.positions(2, 0), (std::vector<int32_t>{0, 1, 2, 93, 94, 95, 96, 97, 98, 99}));
}

TEST(Retention, DuoStreamsBelowTheThreshold) {
  for (const std::string& spec : policy_specs()) {
    if (!spec.starts_with("duo")) continue;
    Toy toy({.policy = spec, .budget = "", .trigger = ""});
    toy.prompt(100, 32);
    const auto heads = toy.positions();
    for (size_t full : {0, 3}) EXPECT_EQ(heads[full].size(), 100U);
    for (size_t streams : {1, 2, 4, 5})
      EXPECT_EQ(heads[streams], (std::vector<int32_t>{0, 1, 92, 93, 94, 95, 96, 97, 98, 99}));
  }
}

TEST(Retention, RazorLeavesTheMeanOfWhatItDrops) {
  for (const std::string& spec : policy_specs()) {
    if (!spec.starts_with("razor")) continue;
    Toy toy({.policy = spec + ",share=0,sinks=2,threshold=0.5", .budget = "", .trigger = "chunk", .prefill_chunk = 32});
    toy.prompt(100, 32);
    const auto heads = toy.positions();
    for (size_t full : {0, 3}) EXPECT_EQ(heads[full].size(), 100U);
    for (int head : {0, 1}) {
      // The first, the newest, and one from the first look that stands for all between.
      EXPECT_EQ(toy.positions(2, head), (std::vector<int32_t>{0, 1, 27, 96, 97, 98, 99}));
      EXPECT_NEAR(std::exp(toy.sequence().bias(2, head, 2)), 94, 0.01);
    }
  }
}

TEST(Retention, KvcrushSpreadsAShareOverWhatItsBaseWouldDrop) {
  const KvRetentionOptions base{.policy = "snapkv:window=8", .budget = "64", .trigger = "prefill"};
  Toy plain(base);
  plain.prompt(300, 64);
  for (const char* spec : {"kvcrush:base=snapkv:window=8,share=0", "kvcrush:base=snapkv:window=8,share=0.5"}) {
    KvRetentionOptions options = base;
    options.policy = spec;
    Toy toy(options);
    toy.prompt(300, 64);
    const auto kept = toy.positions(1, 0), first = plain.positions(1, 0);
    EXPECT_EQ(kept.size(), 64U);
    std::vector<int32_t> both;
    std::set_intersection(kept.begin(), kept.end(), first.begin(), first.end(), std::back_inserter(both));
    EXPECT_GE(both.size(), std::string_view(spec).ends_with("0.5") ? 32U : 64U) << spec;
    if (std::string_view(spec).ends_with("0.5")) {
      EXPECT_LT(both.size(), 60U) << "others than its base's";
    }
  }
}

// A token that is used again and again outlives those that had more attention but not lately.
TEST(Retention, LazyEvictionKeepsWhatRecurs) {
  const auto method = make_kv_policy("lazyeviction:window=1", kToyShape);
  ASSERT_TRUE(method.has_value());
  const std::vector<int32_t> positions = {0, 1, 2, 3, 100}, last_use = {60, 60, 99, 95, 100}, gap = {50, 2, 1, 0, 0};
  KvHeadView view;
  view.next_position = 101;
  view.positions = positions;
  view.last_use = last_use;
  view.longest_gap = gap;
  std::vector<float> scores(5);
  method->policy->score(view, scores);
  EXPECT_GT(scores[0], scores[1]);  // both idle for 40: within its interval, and twenty times beyond
  EXPECT_GT(scores[2], scores[3]);  // used just now; used once, a while ago
  EXPECT_GT(scores[0], scores[3]);
  EXPECT_EQ(scores[4], kKeepSlot);
}

TEST(Retention, DropsOfSharedPagesThatDoNotFitAreErrorsAndTriedAgain) {
  // Two forks of 96 tokens fill the pool: 36 pages, and none for the copies that a drop would need.
  Toy toy({.policy = "random:sinks=0,recent=1", .budget = "50", .trigger = "prefill"}, 1, 36 * 2048 + 100);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(toy.step(32));
  auto fork = std::make_unique<Toy>(toy);
  Status status = toy.step(0, true);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(toy.sequence().check_integrity() && toy.pool().check_integrity());
  fork.reset();
  status = toy.step(0);
  ASSERT_TRUE(status) << status.error().message;
  for (const auto& head : toy.positions()) EXPECT_LE(head.size(), 50U);
}

TEST(Retention, RulesThatMakeNoSenseAreRefused) {
  auto refused = [](KvRetentionOptions options, std::string_view mention) {
    auto rules = KvRetentionRules::make(options, kToyShape, kToyFormat, kToyHeads);
    ASSERT_FALSE(rules.has_value()) << mention;
    EXPECT_NE(rules.error().message.find(mention), std::string::npos) << rules.error().message;
  };
  refused({.policy = "none", .budget = "25%", .trigger = ""},
          "there are cake, chelsea, d2o, duo, h2o, infinipot, kvcrush, kvmerger");
  refused({.policy = "snapkv", .budget = "", .trigger = ""}, "needs a budget");
  refused({.policy = "snapkv", .budget = "20", .trigger = ""}, "needs at least 33");
  refused({.policy = "snapkv", .budget = "1KiB", .trigger = ""}, "0 tokens in each head");
  refused({.policy = "snapkv:kernel=4", .budget = "25%", .trigger = ""}, "odd");
  refused({.policy = "snapkv:pool=min", .budget = "25%", .trigger = ""}, "avg or max");
  refused({.policy = "streaming", .budget = "25%:split=all", .trigger = ""}, "heads cannot compete");
  refused({.policy = "streaming", .budget = "25%", .trigger = "sometimes"}, "prefill, chunk");
  refused({.policy = "streaming", .budget = "lots", .trigger = ""}, "no KV budget");
  refused({.policy = "duo", .budget = "", .trigger = ""}, "duo:gates=FILE");
  refused({.policy = "razor", .budget = "", .trigger = ""}, "razor:gates=FILE");
  refused({.policy = "kvcrush:base=kvcrush", .budget = "25%", .trigger = ""}, "itself");
  refused({.policy = "kvcrush:base=duo", .budget = "25%", .trigger = ""}, "duo:gates=FILE");
  refused({.policy = "kvcrush:base=d2o", .budget = "25%", .trigger = ""}, "drops nothing by a budget");
  refused({.policy = "kvcrush:anchor=x", .budget = "25%", .trigger = ""}, "zeros, ones or alternate");
  refused({.policy = "duo:gates=/nowhere.json", .budget = "", .trigger = ""}, "/nowhere.json");
  const std::string gates = gates_file("duo_gates_of_another_model.json", "[[1], [0], [0]]");
  refused({.policy = "duo:gates=" + gates, .budget = "", .trigger = ""}, "the model has 2 KV heads");
}

}  // namespace
}  // namespace godwit::kv_test
