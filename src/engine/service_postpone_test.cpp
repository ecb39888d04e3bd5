// A policy that finds no memory for what it keeps: the request waits until others are done, and then gets the answer
// that it gets alone.
#include "engine/service_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

constexpr int kPage = 64, kCommon = 5 * kPage;
const KvChoice kDrops{"random", "90%", "prefill"};

std::vector<TokenId> begins_like_all(size_t rest, uint32_t seed) {
  return joined(prompt(kCommon), prompt(rest, seed));
}

// There are 16 pages in every head. One request has 6; another, which drops entries, begins with 5 of them and reads 5
// more; while it does, a third one comes first and takes 4. To drop entries of pages that are shared is to copy what
// stays of them, and there is one page.
TEST(ServicePostpone, ADropThatFindsNoMemoryIsTriedAgainLater) {
  EngineOptions options = small_engine(16);
  const Engine alone = open(options);
  EngineOptions dropping = options;
  dropping.kv_policy = kDrops.policy, dropping.kv_budget = kDrops.budget, dropping.kv_trigger = kDrops.trigger;
  options.context_tokens = 16 * kPage;
  options.kv_budget_bytes = static_cast<uint64_t>(alone.info().kv_bytes_per_token * kPage) * 16;
  const Engine engine = open(options);
  auto service = serve(engine, {.most_running = 4, .kv = {.policies = {"none", "random"}}});
  Client client(*service);
  const auto first = begins_like_all(10, 2), second = begins_like_all(310, 3), third = prompt(200, 4);

  // Each comes when the one before it is where it should be; callbacks are on the service's thread.
  std::future<Outcome> third_answer;
  std::promise<std::pair<std::vector<TokenId>, ServiceAnswer>> first_over, second_over;
  std::vector<TokenId> first_tokens, second_tokens;
  std::vector<int> computed;  // of the second prompt
  const auto ask_second = [&] {
    EXPECT_TRUE(service->submit({.prompt = second, .options = greedy(20), .principal = {}, .kv = kDrops},
                                {[&](const Piece& piece) { second_tokens.push_back(piece.id); },
                                 [&](const ServiceAnswer& answer) {
                                   second_over.set_value({second_tokens, answer});
                                 },
                                 [&](const RequestStatus& status) {
                                   computed.push_back(status.computed_tokens);
                                   if (!third_answer.valid() && status.computed_tokens > kCommon)
                                     third_answer = client.ask(
                                         {.prompt = third, .options = greedy(50), .principal = {}, .priority = 1});
                                 }}));
  };
  ASSERT_TRUE(service->submit({.prompt = first, .options = greedy(150), .principal = {}},
                              {[&](const Piece& piece) {
                                 first_tokens.push_back(piece.id);
                                 if (first_tokens.size() == 1) ask_second();
                               },
                               [&](const ServiceAnswer& answer) {
                                 first_over.set_value({first_tokens, answer});
                               }}));

  auto [tokens, answer] = second_over.get_future().get();
  EXPECT_EQ(answer.error, "");
  tokens.resize(20);
  EXPECT_EQ(tokens, cold(open(dropping), second, 20));
  EXPECT_EQ(std::count(computed.begin(), computed.end(), 0), 1) << "it went back to wait once";
  std::tie(tokens, answer) = first_over.get_future().get();
  EXPECT_EQ(answer.error, "");
  tokens.resize(150);
  EXPECT_EQ(tokens, cold(alone, first, 150));
  EXPECT_EQ(third_answer.get().tokens, cold(alone, third, 50));
  EXPECT_EQ(service->stats().gave_way, 1u);
}

}  // namespace
}  // namespace godwit
