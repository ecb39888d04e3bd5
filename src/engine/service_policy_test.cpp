// Requests whose KV policies drop entries: each gets what a session of its own would have given.
#include "engine/service_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Method {
  const char *policy, *budget, *trigger;
  const char* codec = "f16";
};

// Every kind: nothing observed, the last queries, all of them, K and V, merges; looks at a prompt's end, after chunks,
// after numbers of tokens that are no chunks.
constexpr Method kMethods[] = {
    {"streaming", "25%", "prefill"},
    {"streaming", "96", "chunk"},
    {"snapkv", "25%", "prefill"},
    {"snapkv", "96", "chunk"},
    {"tova", "60", "100"},
    {"h2o", "30%", "chunk"},
    {"h2o", "25%", "prefill"},
    {"infinipot", "96", "256"},
    {"lazyeviction", "140", "40"},
    {"d2o", "100", "chunk"},
    {"kvmerger", "25%", "prefill"},
    {"cake", "64", "prefill"},
    {"streaming", "30%", "prefill", "q4:last=64"},
    {"snapkv", "100", "chunk", "q4:last=128,first=64"},
};

// What demotes, an engine does for all its requests: pages are then sealed where a policy says so.
constexpr Method kDemoting[] = {
    {"mikv:base=infinipot", "25%", "prefill", "kivi:k=4,v=4,last=64"},
    {"mikv:base=snapkv", "192", "chunk", "kivi:k=4,v=4,last=0"},
    {"zipcache", "40%", "prefill", "q4:last=64"},
};

std::vector<Method> all_methods() {
  std::vector<Method> all(std::begin(kMethods), std::end(kMethods));
  all.insert(all.end(), std::begin(kDemoting), std::end(kDemoting));
  return all;
}

EngineOptions with(const Method& method, int chunk = 64) {
  EngineOptions options = small_engine(chunk);
  options.kv_policy = method.policy;
  options.kv_budget = method.budget;
  options.kv_trigger = method.trigger;
  options.kv_codec = method.codec;
  return options;
}

std::string name_of(const Method& m) {
  return std::string(m.policy) + " " + m.budget + " " + m.trigger + " " + m.codec;
}

TEST(ServicePolicy, BatchedEqualsAlone) {
  for (const Method& method : all_methods()) {
    const Engine engine = open(with(method)), alone = open(with(method));
    auto service = serve(engine, {.most_running = 8});
    Client client(*service);
    std::vector<std::future<Outcome>> futures;
    std::vector<std::vector<TokenId>> want;
    for (uint32_t i = 0; i < 12; ++i) {
      const auto tokens = prompt(20 + i * 37 % 400, i % 3 + 1);  // some begin alike
      futures.push_back(client.ask({.prompt = tokens, .options = greedy(45), .principal = {}}));
      want.push_back(cold(alone, tokens, 45));
    }
    for (size_t i = 0; i < futures.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.answer.error, "") << name_of(method);
      EXPECT_EQ(got.tokens, want[i]) << name_of(method) << ", request " << i;
    }
    service.reset();
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0u) << name_of(method);
  }
}

TEST(ServicePolicy, WarmEqualsCold) {
  const auto tokens = prompt(500);
  const auto exact = cold(open(small_engine()), tokens, 20);
  size_t changed = 0;
  for (const Method& method : all_methods()) {
    const Engine engine = open(with(method));
    auto service = serve(engine);
    Client client(*service);
    const auto want = cold(open(with(method)), tokens, 20);
    changed += want != exact ? 1 : 0;
    for (const bool warm : {false, true}) {
      const Outcome got = client.ask({.prompt = tokens, .options = greedy(20), .principal = {}}).get();
      EXPECT_EQ(got.tokens, want) << name_of(method) << ", warm " << warm;
      EXPECT_EQ(got.answer.cached_tokens, warm ? 448 : 0) << name_of(method);
    }
  }
  EXPECT_GT(changed, std::size(kMethods) / 2) << "too little is dropped to show anything";
}

// So little memory that requests give way to one another in all phases.
TEST(ServicePolicy, GivingWayChangesNoAnswer) {
  const auto page_column = static_cast<uint64_t>(open(small_engine()).info().kv_bytes_per_token * 64);
  size_t gave_way = 0;
  for (const Method& method : kMethods) {
    const Engine alone = open(with(method));
    EngineOptions options = with(method);
    options.context_tokens = 450;
    options.kv_budget_bytes = page_column * 10;
    const Engine engine = open(options);
    auto service = serve(engine, {.most_running = 6});
    Client client(*service);
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 8; ++i)
      futures.push_back(client.ask({.prompt = prompt(60 + 25 * i, i + 1), .options = greedy(90), .principal = {}}));
    for (uint32_t i = 0; i < futures.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.answer.error, "") << name_of(method) << ", request " << i;
      EXPECT_EQ(got.tokens, cold(alone, prompt(60 + 25 * i, i + 1), 90)) << name_of(method) << ", request " << i;
    }
    gave_way += service->stats().gave_way;
    service.reset();
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0u) << name_of(method);
  }
  EXPECT_GT(gave_way, std::size(kMethods));
}

TEST(ServicePolicy, EachRequestHasItsOwnMethod) {
  const Engine engine = open(small_engine());
  std::vector<std::string> allowed = {"none"};
  for (const Method& method : kMethods) allowed.emplace_back(method.policy);
  auto service = serve(engine, {.most_running = 8, .kv = {.policies = allowed}});
  Client client(*service);
  const auto tokens = prompt(300);
  const auto exact = cold(engine, tokens, 25);
  std::vector<std::future<Outcome>> futures;
  std::vector<std::vector<TokenId>> want;
  for (const Method& method : kMethods) {
    if (std::isdigit(method.trigger[0]) != 0 || method.codec != engine.info().kv_codec) continue;
    futures.push_back(client.ask({.prompt = tokens,
                                  .options = greedy(25),
                                  .principal = {},
                                  .kv = KvChoice{method.policy, method.budget, method.trigger}}));
    want.push_back(cold(open(with(method)), tokens, 25));
    for (const std::optional<KvChoice>& whole :
         {std::optional<KvChoice>(), std::optional(KvChoice{.policy = "none"})}) {
      futures.push_back(client.ask({.prompt = tokens, .options = greedy(25), .principal = {}, .kv = whole}));
      want.push_back(exact);
    }
  }
  for (size_t i = 0; i < futures.size(); ++i) EXPECT_EQ(futures[i].get().tokens, want[i]) << i;
}

TEST(ServicePolicy, RequestsChooseWhatIsAllowed) {
  const Engine engine = open(small_engine());
  const auto refused = [&](Service& service, KvChoice choice, std::string_view mention) {
    expect_error(service.submit({.prompt = prompt(200), .options = greedy(2), .principal = {}, .kv = choice}, {}),
                 ErrorCode::kInvalidArgument, mention);
  };
  refused(*serve(engine), {"snapkv", "25%"}, "may not choose");
  auto service = serve(
      engine, {.kv = {.policies = {"snapkv:window=16", "streaming"}, .least_budget = "25%", .largest_budget = "100"}});
  refused(*service, {"h2o", "25%"}, "there are snapkv, streaming");
  refused(*service, {"snapkv:window=8", "25%"}, "may not be chosen");
  refused(*service, {"none"}, "may not be chosen");
  refused(*service, {"snapkv"}, "needs a budget");
  refused(*service, {"snapkv", "10%"}, "less than 25%");
  refused(*service, {"snapkv", "49"}, "less than 25%");
  refused(*service, {"streaming", "60%"}, "more than 100");
  refused(*service, {"streaming", "lots"}, "no KV budget");
  refused(*service, {"streaming", "50%", "3"}, "prefill or chunk");
  Client client(*service);
  for (const KvChoice& choice : {KvChoice{"snapkv", "25%"}, KvChoice{"snapkv:window=16", "100", "chunk"}})
    EXPECT_EQ(
        client.ask({.prompt = prompt(200), .options = greedy(2), .principal = {}, .kv = choice}).get().answer.error,
        "");
  expect_error(Service::start(engine, {.kv = {.policies = {"lru"}}}), ErrorCode::kInvalidArgument, "lru");
  expect_error(Service::start(engine, {.kv = {.policies = {}, .least_budget = "25%"}}), ErrorCode::kInvalidArgument,
               "do nothing");
  for (const auto& [least, largest] : {std::pair{"50%", "25%"}, {"101", "100"}, {"2MiB", "1024KiB"}})
    expect_error(
        Service::start(engine, {.kv = {.policies = {"snapkv"}, .least_budget = least, .largest_budget = largest}}),
        ErrorCode::kInvalidArgument, "more than the largest");
}

// As the operator's budget is: bytes count pages of one size.
TEST(ServicePolicy, BytesAreRefusedWhereLayersDiffer) {
  const auto service = [](const char* bits, const KvAllowance& kv) {
    return Service::start(open(with({"", "", "", bits})), {.kv = kv});
  };
  const auto submit = [](Service& to, const char* budget) {
    return to.submit(
        {.prompt = prompt(200), .options = greedy(2), .principal = {}, .kv = KvChoice{"streaming", budget}}, {});
  };
  const char *mixed = "kvtuner:bits=88-44", *same = "kivi:k=4,v=4";
  const KvAllowance streaming{.policies = {"streaming"}, .least_budget = {}, .largest_budget = {}};
  auto differs = value_of(service(mixed, streaming)), equal = value_of(service(same, streaming));
  expect_error(submit(*differs, "1MiB"), ErrorCode::kInvalidArgument, "pages of different size");
  EXPECT_TRUE(submit(*differs, "50%"));
  EXPECT_TRUE(submit(*equal, "1MiB"));
  for (const KvAllowance& limits :
       {KvAllowance{.policies = {"streaming"}, .least_budget = "1MiB", .largest_budget = {}},
        KvAllowance{.policies = {"streaming"}, .least_budget = {}, .largest_budget = "1MiB"}})
    expect_error(service(mixed, limits), ErrorCode::kInvalidArgument, "pages of different size");
}

TEST(ServicePolicy, AnEngineDropsOrDemotes) {
  const Engine drops = open(with({"streaming", "25%", "prefill", "kivi:k=4,v=4,last=64"}));
  const Engine demotes = open(with(kDemoting[0]));
  const auto refused = [](const Engine& engine, const char* policy, const char* mention) {
    auto service = serve(engine, {.kv = {.policies = {policy}}});
    expect_error(service->submit(
                     {.prompt = prompt(200), .options = greedy(2), .principal = {}, .kv = KvChoice{policy, "80%"}}, {}),
                 ErrorCode::kInvalidArgument, mention);
  };
  refused(drops, "mikv", "and it demotes them");
  refused(demotes, "streaming", "and it drops them");
}

TEST(ServicePolicy, StatusTellsWhatIsRetained) {
  const Engine engine = open(with({"streaming", "25%", "prefill"}));
  auto service = serve(engine);
  std::vector<double> retained;
  KvChoice method;
  std::promise<void> over;
  EXPECT_TRUE(service->submit({.prompt = prompt(400), .options = greedy(3), .principal = {}},
                              {{},
                               [&](const ServiceAnswer&) { over.set_value(); },
                               [&](const RequestStatus& status) {
                                 retained.push_back(status.kv_retained);
                                 method = status.kv;
                               }}));
  over.get_future().wait();
  ASSERT_GE(retained.size(), 2u);
  EXPECT_EQ(retained.front(), 1);
  EXPECT_NEAR(retained.back(), 0.25, 0.01);
  EXPECT_EQ(method.policy, "streaming");
  EXPECT_EQ(method.budget, "25%");
}

// The last rows of a prompt read everything: what they left is of no use to a prompt that goes on.
TEST(ServicePolicy, SparsePrefillIsSharedWithoutItsTail) {
  EngineOptions options = small_engine();
  options.prefill = "trishape:sinks=16,window=64,tail=100";
  const Engine engine = open(options), alone = open(options);
  auto service = serve(engine);
  Client client(*service);
  const auto tokens = prompt(600);
  for (const size_t count : {400, 600, 600, 450}) {
    const auto text = copy_of(std::span(tokens).first(count));
    const Outcome got = client.ask({.prompt = text, .options = greedy(20), .principal = {}}).get();
    EXPECT_EQ(got.tokens, cold(alone, text, 20)) << count;
  }
  EXPECT_EQ(service->stats().cached_tokens, 256u + 448 + 320);
}

}  // namespace
}  // namespace godwit
