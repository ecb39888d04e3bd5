// For tests: an engine over several ranks, which are threads.
#pragma once

#include <thread>

#include "dist/local_link.h"
#include "engine/ranks_impl.h"
#include "engine/test_engine.h"

namespace godwit::engine_test {

// Runs `leader` on rank 0 while the others follow; what each of them said in the end.
inline std::vector<Status> with_ranks(int count, const std::function<void(std::shared_ptr<Ranks>)>& leader,
                                      dist::LocalFaults faults = {}, double idle_timeouts = 10) {
  auto links = dist::make_local_links(count, std::move(faults));
  std::vector<Status> said(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] {
      auto ranks = std::make_shared<Ranks>(std::make_unique<Ranks::Impl>(std::move(links[i])));
      ranks->impl().transport.options().idle_timeouts = idle_timeouts;
      said[i] = ranks->impl().join();
      if (!said[i]) return;
      if (i == 0)
        leader(ranks);
      else
        said[i] = ranks->follow();
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

inline void expect_all_well(const std::vector<Status>& said) {
  for (const Status& status : said) EXPECT_TRUE(status.has_value()) << status.error().message;
}

inline EngineOptions over(std::shared_ptr<Ranks> ranks, EngineOptions options = options_for("qwen3")) {
  options.threads = 1;
  options.prefill_chunk = 128;
  options.rank_options.prefill_ranks = ranks->size();  // or short prompts would be one rank's
  options.ranks = std::move(ranks);
  return options;
}

// What came of a conversation.
struct Talk {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<uint64_t> kv_bytes;
  bool operator==(const Talk&) const = default;
};

// Turns that end amid pages and segments, a fork, and a cut. A first answer long enough seals pages.
inline Talk talk(const Engine& engine, int first_answer, int second_prompt) {
  Talk came;
  const auto say = [&](Session& session, const std::vector<TokenId>& tokens, int count) {
    append(session, tokens);
    for (TokenId token : value_of(session.generate(greedy(count))).tokens) came.tokens.push_back(token);
    for (const TokenScore& score : value_of(session.score(prompt(3, 5)))) came.logprobs.push_back(score.logprob);
    came.kv_bytes.push_back(session.kv_bytes());
  };
  Session session = engine.start();
  say(session, prompt(1290), first_answer);
  Session fork = session.fork();
  say(fork, prompt(90, 7), 4);
  say(session, prompt(second_prompt, 3), 4);
  session.truncate(1000);
  say(session, prompt(40, 9), 4);
  return came;
}

}  // namespace godwit::engine_test
