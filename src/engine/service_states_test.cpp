// Prompts whose beginnings were compressed for another: they go on with what its policy left.
#include "engine/service_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Method {
  const char *policy, *budget, *trigger;
};

// All kinds of state that a beginning leaves beside its entries: none, the last queries, sums over all queries, counts
// of merged slots, tokens since the last look.
constexpr Method kMethods[] = {
    {"streaming", "96", "chunk"}, {"random:seed=7", "25%", "chunk"}, {"infinipot", "96", "256"},
    {"chelsea", "30%", "chunk"},  {"snapkv", "96", "chunk"},         {"tova", "60", "100"},
    {"h2o", "25%", "prefill"},    {"lazyeviction", "140", "40"},     {"d2o", "100", "chunk"},
    {"kvmerger", "25%", "chunk"},
};

EngineOptions with(const Method& method) {
  EngineOptions options = small_engine();
  options.kv_policy = method.policy;
  options.kv_budget = method.budget;
  options.kv_trigger = method.trigger;
  options.kv_budget_bytes = 64 << 20;  // queries that are kept beside the entries have a share of it
  return options;
}

// The first `common` tokens of one text, then others.
std::vector<TokenId> begins_like(size_t common, size_t count, uint32_t seed) {
  std::vector<TokenId> tokens = prompt(common);
  const std::vector<TokenId> rest = prompt(count - common, seed);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

TEST(ServiceStates, PartialHitsEqualCold) {
  struct Ask {
    size_t common, count;
    int cached;  // whole chunks of 64
  };
  for (const Method& method : kMethods) {
    const Engine engine = open(with(method)), alone = open(with(method));
    auto service = serve(engine);
    Client client(*service);
    for (const Ask& ask : {Ask{300, 330, 0}, Ask{300, 500, 256}, Ask{200, 290, 192}, Ask{300, 301, 256},
                           Ask{256, 257, 256}, Ask{256, 256, 192}}) {
      const auto tokens = begins_like(ask.common, ask.count, static_cast<uint32_t>(ask.count));
      const Outcome got = client.ask({.prompt = tokens, .options = greedy(30), .principal = {}}).get();
      EXPECT_EQ(got.tokens, cold(alone, tokens, 30)) << method.policy << ", " << ask.count;
      EXPECT_EQ(got.answer.cached_tokens, ask.cached) << method.policy << ", " << ask.count;
    }
    service.reset();
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0u) << method.policy;
  }
}

// Forks of one state are computed in the same steps, with different numbers of rows.
TEST(ServiceStates, ManyGoOnWithOneState) {
  for (const Method& method : kMethods) {
    const Engine engine = open(with(method)), alone = open(with(method));
    auto service = serve(engine, {.most_running = 16});
    Client client(*service);
    (void)client.ask({.prompt = prompt(330), .options = greedy(1), .principal = {}}).get();
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 12; ++i)
      futures.push_back(
          client.ask({.prompt = begins_like(320, 325 + 7 * i, i + 2), .options = greedy(20), .principal = {}}));
    for (uint32_t i = 0; i < futures.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.tokens, cold(alone, begins_like(320, 325 + 7 * i, i + 2), 20)) << method.policy << ", " << i;
      EXPECT_EQ(got.answer.cached_tokens, 320) << method.policy << ", " << i;
    }
  }
}

// Requests that come together compute a common beginning once.
TEST(ServiceStates, OneReadsForAll) {
  const Engine engine = open(with(kMethods[0]));
  auto service = serve(engine, {.most_running = 8});
  Client client(*service);
  std::vector<std::future<Outcome>> futures;
  for (uint32_t i = 0; i < 8; ++i)
    futures.push_back(client.ask({.prompt = begins_like(640, 660, i + 2), .options = greedy(4), .principal = {}}));
  for (auto& future : futures) EXPECT_EQ(future.get().answer.error, "");
  EXPECT_EQ(service->stats().cached_tokens, 7u * 640);
}

TEST(ServiceStates, OtherMethodsBudgetsAndPrincipalsMiss) {
  const Engine engine = open(small_engine());
  auto service = serve(engine, {.kv = {.policies = {"none", "streaming:sinks=2", "random"}}});
  Client client(*service);
  const auto tokens = prompt(400);
  const auto cached = [&](const KvChoice& choice, const char* principal = "") {
    return client.ask({.prompt = tokens, .options = greedy(2), .principal = principal, .kv = choice})
        .get()
        .answer.cached_tokens;
  };
  const KvChoice first{"streaming", "96", "chunk"};
  EXPECT_EQ(cached(first), 0);
  EXPECT_EQ(cached(first), 384);
  // What was not compressed yet, all find: the first chunk, or as much as the budget had room for.
  EXPECT_EQ(cached({"streaming", "97", "chunk"}), 64);
  EXPECT_EQ(cached({"streaming", "30%", "chunk"}), 64);
  EXPECT_EQ(cached({"random", "96", "chunk"}), 64);
  EXPECT_EQ(cached({"none"}), 128);
  EXPECT_EQ(cached(first, "somebody"), 0);
  EXPECT_EQ(cached({"streaming:sinks=2", "96", "chunk"}), 384);
}

// A policy of the same name may have other parameters as a request's choice than as the engine's own.
TEST(ServiceStates, ANameIsNoMethod) {
  const Method own{"streaming", "96", "chunk"};
  const Engine engine = open(with(own));
  auto service = serve(engine, {.kv = {.policies = {"streaming:sinks=40"}}});
  Client client(*service);
  const auto tokens = prompt(400);
  (void)client.ask({.prompt = tokens, .options = greedy(2), .principal = {}}).get();
  const Outcome got =
      client.ask({.prompt = tokens, .options = greedy(20), .principal = {}, .kv = KvChoice{"streaming", "96", "chunk"}})
          .get();
  EXPECT_EQ(got.tokens, cold(open(with({"streaming:sinks=40", "96", "chunk"})), tokens, 20));
  EXPECT_EQ(got.answer.cached_tokens, 64);
}

// h2o drops nothing before the prompt's end: its states have the blocks' pages, and sums beside them.
TEST(ServiceStates, AreSeenAndCountAsKvMemory) {
  const Engine engine = open(with({"h2o", "25%", "prefill"}));
  auto service = serve(engine);
  Client client(*service);
  EXPECT_EQ(client.ask({.prompt = prompt(330), .options = greedy(3), .principal = {}}).get().answer.error, "");
  const ServiceStats stats = service->stats();
  EXPECT_EQ(stats.prefix_blocks, 5u);
  EXPECT_EQ(stats.prefix_states, 5u);
  EXPECT_EQ(stats.prefix_state_bytes, stats.kv_bytes_in_use);
  EXPECT_GT(stats.prefix_state_bytes, stats.prefix_bytes);
}

TEST(ServiceStates, GoWhenMemoryIsWanted) {
  for (const Method& method : kMethods) {
    EngineOptions options = with(method);
    options.context_tokens = 450;
    options.kv_budget_bytes = static_cast<uint64_t>(open(small_engine()).info().kv_bytes_per_token * 64) * 10;
    const Engine engine = open(options), alone = open(with(method));
    auto service = serve(engine, {.most_running = 4});
    Client client(*service);
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 8; ++i)
      futures.push_back(
          client.ask({.prompt = begins_like(128 * (i % 2), 350, i % 4 + 2), .options = greedy(40), .principal = {}}));
    for (uint32_t i = 0; i < futures.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.answer.error, "") << method.policy << ", " << i;
      EXPECT_EQ(got.tokens, cold(alone, begins_like(128 * (i % 2), 350, i % 4 + 2), 40)) << method.policy << ", " << i;
    }
  }
}

}  // namespace
}  // namespace godwit
