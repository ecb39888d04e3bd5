// An engine over several ranks, here threads, gives the bits of one process: prompts, answers, scores, forks.
#include <gtest/gtest.h>

#include "engine/random_model.h"
#include "engine/ranks_probe.h"
#include "engine/test_ranks.h"

namespace godwit {
namespace {

using namespace engine_test;

// Three turns: a long one, a short one, one again.
std::vector<TokenId> talk(const Engine& engine) {
  Session session = engine.start();
  for (size_t turn : {1500, 70, 400}) {
    append(session, prompt(turn, static_cast<uint32_t>(turn)));
    value_of(session.generate(greedy(8)));
  }
  return copy_of(session.tokens());
}

class TeamDegrees : public testing::TestWithParam<int> {};

TEST_P(TeamDegrees, ConversationsAreTheSame) {
  const std::vector<TokenId> want = talk(open());
  for (const char* ring : {"auto", "pass-kv", "pass-q"}) {
    for (bool share : {true, false}) {
      expect_all_well(with_ranks(GetParam(), [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.rank_options.ring = ring;
        options.rank_options.share_memory = share;
        const Engine engine = open(options);
        EXPECT_EQ(engine.info().ranks, GetParam());
        EXPECT_EQ(engine.info().ring.ends_with("and shared memory"), share);
        EXPECT_EQ(talk(engine), want) << ring << " " << share;
      }));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, TeamDegrees, testing::Values(2, 3, 4, 8));

TEST(Team, EveryModelAndCodec) {
  for (const char* model : {"qwen3-moe", "gemma2", "gemma3", "qwen2-window", "llama3"}) {
    for (const char* codec : {"f16", "q8"}) {
      EngineOptions options = options_for(model);
      options.kv_codec = codec;
      const std::vector<TokenId> tokens = prompt(1300);
      const auto want = cold(open(options), tokens, 6);
      for (bool share : {true, false}) {
        options.rank_options.share_memory = share;
        expect_all_well(with_ranks(2, [&](auto ranks) {
          EXPECT_EQ(cold(open(over(ranks, options)), tokens, 6), want) << model << " " << codec << " " << share;
        }));
      }
    }
  }
}

TEST(Team, ScoresForksAndTruncations) {
  const std::vector<TokenId> tokens = prompt(600);
  auto script = [&](const Engine& engine) {
    std::vector<float> numbers;
    Session session = engine.start();
    for (const TokenScore& score : value_of(session.score(tokens))) numbers.push_back(score.logprob);
    Session fork = session.fork();
    append(fork, prompt(90, 7));
    for (TokenId token : value_of(fork.generate(greedy(5))).tokens) numbers.push_back(static_cast<float>(token));
    session.truncate(333);
    append(session, prompt(50, 9));
    for (TokenId token : value_of(session.generate(greedy(5))).tokens) numbers.push_back(static_cast<float>(token));
    EXPECT_EQ(session.tokens().size(), 388U);
    return numbers;
  };
  const std::vector<float> want = script(open());
  uint64_t alone_bytes = 0;
  {
    const Engine engine = open();
    Session session = engine.start();
    append(session, tokens);
    EXPECT_TRUE(session.prefill());
    alone_bytes = session.kv_bytes();
  }
  expect_all_well(with_ranks(3, [&](auto ranks) {
    const Engine engine = open(over(ranks));
    EXPECT_EQ(script(engine), want);
    Session session = engine.start();
    append(session, tokens);
    EXPECT_TRUE(session.prefill());
    EXPECT_EQ(session.kv_bytes(), alone_bytes);
  }));
}

TEST(Team, SeveralEnginesTakeTurns) {
  const std::vector<TokenId> tokens = prompt(300);
  const auto want = cold(open(), tokens, 5);
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine one = open(over(ranks)), two = open(over(ranks));
    EXPECT_EQ(cold(one, tokens, 5), want);
    EXPECT_EQ(cold(two, tokens, 5), want);
    EXPECT_EQ(cold(one, tokens, 5), want);
  }));
}

// Between steps the others hear from rank 0 all the time, so that they know when it is no more.
TEST(Team, ARankZeroThatHangsIsNamed) {
  const auto said = with_ranks(
      3,
      [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.rank_options.timeout_s = 1;
        const Engine engine = open(options);
        std::this_thread::sleep_for(std::chrono::seconds(3));  // idle is not lost
        EXPECT_EQ(cold(engine, prompt(40), 3).size(), 3U);
        std::lock_guard lock(ranks->impl().mutex);  // nor is anything said now
        std::this_thread::sleep_for(std::chrono::seconds(5));
      },
      {}, 2);
  for (size_t rank : {1, 2}) {
    ASSERT_FALSE(said[rank].has_value());
    EXPECT_NE(said[rank].error().message.find("rank 0 has not answered for 2 s"), std::string::npos)
        << said[rank].error().message;
  }
}

// Rank 1 finds another model under the same path: it is put there on the way from rank 0.
TEST(Team, OtherWeightsAreRefused) {
  io_test::TempFolder folder;
  const std::filesystem::path path = folder.path() / "model.gguf", other = folder.path() / "other.gguf";
  const ModelShape shape = value_of(find_shape("llama-tiny"));
  value_of(write_random_model(shape, 1, {}, path));
  value_of(write_random_model(shape, 2, {}, other));
  for (bool swapped : {false, true}) {
    dist::LocalFaults faults;
    faults.tamper = [&](int from, int, std::span<std::byte> message) {
      const std::string_view text(reinterpret_cast<const char*>(message.data()), message.size());
      if (swapped && from == 0 && text.find("model.gguf") != text.npos) std::filesystem::rename(other, path);
    };
    expect_all_well(with_ranks(
        2,
        [&](auto ranks) {
          EngineOptions options;
          options.model = path.string();
          const auto engine = Engine::open(over(ranks, options));
          if (swapped)
            expect_error(engine, ErrorCode::kInvalidArgument, "would compute something else");
          else
            EXPECT_TRUE(engine.has_value());
        },
        faults));
  }
}

TEST(Team, RefusesWhatCannotWork) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    auto refused = [&](auto change, ErrorCode code, std::string_view mention) {
      EngineOptions options = over(ranks);
      change(options);
      expect_error(Engine::open(options), code, mention);
    };
    refused([](auto& o) { o.kv_policy = "h2o", o.kv_budget = "128", o.kv_codec = "q4:last=64"; },
            ErrorCode::kUnsupported, "KV policy 'h2o'");
    refused([](auto& o) { o.prefill = "trishape"; }, ErrorCode::kUnsupported, "trishape");
    refused([](auto& o) { o.decode = "resa"; }, ErrorCode::kUnsupported, "resa");
    refused([](auto& o) { o.rank_options.ring = "pass-x"; }, ErrorCode::kInvalidArgument, "pass-x");
    refused([](auto& o) { o.rank_options.timeout_s = 0; }, ErrorCode::kInvalidArgument, "timeout");
    const Engine engine = open(over(ranks));  // and goes on
    EXPECT_EQ(cold(engine, prompt(40), 3).size(), 3U);
  }));
}

TEST(Team, MemoryThatIsShortOnOneRankIsSaidAndTheSessionGoesOn) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    EngineOptions options = over(ranks);
    const Engine engine = open(options);
    std::vector<Session> sessions;
    Status status;
    while (status && sessions.size() < 1000) {
      sessions.push_back(engine.start());
      append(sessions.back(), prompt(1000));
      status = sessions.back().prefill();
    }
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kExhausted) << status.error().message;
    Session last = std::move(sessions.back());
    sessions.clear();
    EXPECT_EQ(value_of(last.generate(greedy(4))).tokens, cold(open(), prompt(1000), 4));
  }));
}

TEST(Team, ALostRankEndsTheRunAndIsNamed) {
  int messages = 0;
  const auto said = with_ranks(3,
                               [&](auto ranks) {
                                 const Engine engine = open(over(ranks));
                                 Session session = engine.start();
                                 append(session, prompt(1000));
                                 const Status status = session.prefill();
                                 ASSERT_FALSE(status.has_value());
                                 EXPECT_NE(status.error().message.find("rank 2 sent"), std::string::npos)
                                     << status.error().message;
                                 EXPECT_FALSE(ranks->status().has_value());
                               },
                               {[&](int from, int to, std::span<std::byte> message) {
                                 const bool slots = message[4] == static_cast<std::byte>(dist::FrameKind::kSlots);
                                 if (from == 2 && to == 0 && slots && ++messages == 2) message[24] ^= std::byte{1};
                               }});
  EXPECT_FALSE(said[1].has_value() && said[2].has_value());
}

}  // namespace
}  // namespace godwit
