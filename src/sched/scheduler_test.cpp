#include <random>

#include "sched/scheduler_testing.h"

namespace godwit {
namespace {

TEST(Scheduler, ALongPromptDoesNotHoldUpThoseWhoGenerate) {
  SchedOptions options;
  Simulation s(options, 1 << 20);
  s.add(0, text(100, 1), 400);
  s.add(1, text(60000, 2), 5);
  s.run();
  expect_all_done(s);
  EXPECT_LE(s.jobs[0].longest_gap, options.step_cost * 1.1);
  EXPECT_LE(s.longest_step, options.step_cost * 1.1);
}

TEST(Scheduler, StepsStayEquallyLongAsAPromptGetsLonger) {
  SchedOptions options;
  options.attention_tokens = 1000;
  Simulation s(options, 1 << 20);
  s.add(0, text(50000, 1), 1);
  s.run();
  // Attention makes the last tokens fifty times as costly as the first; the pieces shrink with that.
  const double total = 50000 * (1 + 25000.0 / 1000);
  EXPECT_LE(s.longest_step, options.step_cost * 1.01);
  EXPECT_LE(static_cast<double>(s.steps), 1.25 * total / options.step_cost + 3);
}

TEST(Scheduler, HigherPriorityFirstThenWhoHadLeast) {
  SchedOptions options;
  options.most_running = 1;
  Simulation s(options, 1 << 20);
  for (int i = 0; i < 6; ++i) s.add(0, text(1000, i), 10, 0, "greedy");
  const uint64_t modest = s.add(0, text(1000, 10), 10, 0, "modest"), urgent = s.add(0, text(1000, 11), 10, 1, "greedy");
  s.run();
  expect_all_done(s);
  for (const Job& job : s.jobs) EXPECT_GE(job.first, s.jobs[urgent].first);
  size_t earlier = 0;
  for (const Job& job : s.jobs) earlier += job.first < s.jobs[modest].first ? 1 : 0;
  EXPECT_LE(earlier, 1u);  // the urgent one
}

TEST(Scheduler, NobodyWaitsForEver) {
  SchedOptions options;
  options.most_running = 1;
  options.patience = 50;
  Simulation s(options, 1 << 20);
  const uint64_t meek = s.add(0, text(100, 1), 5, 0);
  for (int i = 0; i < 200; ++i) s.add(100.0 * i, text(100, 2 + i), 5, 3);
  s.run();
  expect_all_done(s);
  size_t later = 0;
  for (const Job& job : s.jobs) later += job.first > s.jobs[meek].first ? 1 : 0;
  EXPECT_GT(later, 100u);
}

TEST(Scheduler, ASharedBeginningIsReadOnce) {
  SchedOptions options;
  Simulation s(options, 1 << 20);
  const Tokens book = text(20000, 1);
  for (int i = 0; i < 8; ++i) {
    Tokens prompt = book;
    for (int32_t j = 0; j < 20; ++j) prompt.push_back(-1 - i * 100 - j);
    s.add(0, prompt, 20);
  }
  s.run();
  expect_all_done(s);
  const double once = 20020 * (1 + 10000.0 / options.attention_tokens);
  EXPECT_LT(s.now, 1.3 * once);
}

// Who cannot use what another reads does not wait for it.
TEST(Scheduler, OnlyThoseWhoShareWaitForOneAnother) {
  const auto prompt = std::make_shared<const Tokens>(text(300, 1));
  for (const auto& [space, shareable, begin] : {std::tuple("", 299, 1u), {"other", 299, 2u}, {"", 20, 2u}}) {
    Scheduler scheduler({});
    FakeMemory memory(1 << 20);
    memory.know(0, *prompt);
    memory.know(1, *prompt);
    scheduler.submit({0, "p", 0, prompt});
    scheduler.submit({1, "p", 0, prompt, space, static_cast<size_t>(shareable)});
    EXPECT_EQ(scheduler.next(memory).began.size(), begin) << space << shareable;
  }
}

TEST(Scheduler, AFullQueueRefuses) {
  SchedOptions options;
  options.most_waiting = 5;
  Simulation s(options, 1 << 20);
  for (int i = 0; i < 9; ++i) s.add(0, text(10, i), 1);
  s.run();
  EXPECT_EQ(s.refused, 4u);
}

TEST(Scheduler, WhatFitsNowhereFailsAndOthersGoOn) {
  Simulation s({}, 1000);
  s.add(0, text(400, 1), 20);
  s.add(0, text(2000, 2), 5);
  s.add(0, text(300, 3), 5000);  // its answer outgrows the memory
  s.add(0, text(400, 4), 20);
  s.run();
  EXPECT_TRUE(s.jobs[1].failed);
  EXPECT_TRUE(s.jobs[2].failed);
  EXPECT_EQ(s.jobs[0].sampled, 20u);
  EXPECT_EQ(s.jobs[3].sampled, 20u);
}

// Thousands of random arrivals with cancels: nothing lost, nothing twice, nothing stuck, whatever the memory.
TEST(Scheduler, RandomArrivals) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    SchedOptions options;
    options.most_running = static_cast<size_t>(1 + below(32));
    options.most_waiting = 100000;
    options.step_tokens = options.least_tokens = static_cast<size_t>(16 << below(5));
    options.step_cost = static_cast<double>(options.step_tokens);
    options.attention_tokens = 200 + below(4000);
    Simulation s(options, static_cast<size_t>(4000 + below(20000)));
    double at = 0;
    for (int i = 0; i < 400; ++i) {
      at += std::exponential_distribution<double>(1 / 300.0)(random);
      Tokens prompt = text(static_cast<size_t>(1 + below(below(4) == 0 ? 3000 : 200)), below(20));
      prompt.push_back(-i);
      s.add(at, prompt, static_cast<size_t>(1 + below(200)), below(3),
            std::string(1, static_cast<char>('a' + below(4))));
      if (below(3) == 0) s.jobs.back().request.piece_tokens = options.step_tokens;
    }
    s.run();
    if (testing::Test::HasFatalFailure()) return;
    expect_all_done(s);
    EXPECT_LE(s.most_running, options.most_running);
    // A step is those who generate and at most one piece of prompt beyond the budget.
    const double decodes = static_cast<double>(options.most_running) * (1 + 3400 / options.attention_tokens);
    EXPECT_LE(s.longest_step, options.step_cost + decodes +
                                  static_cast<double>(options.least_tokens) * (1 + 3400 / options.attention_tokens))
        << seed;
  }
}

TEST(Scheduler, RemovingAtAnyTimeFreesMemory) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  SchedOptions options;
  options.most_running = 8;
  Scheduler scheduler(options);
  FakeMemory memory(6000);
  std::map<uint64_t, size_t> left;  // tokens of prompt and answer that are not computed
  uint64_t next = 0;
  for (int round = 0; round < 5000; ++round) {
    if (below(3) == 0) {
      const auto prompt = std::make_shared<const Tokens>(text(static_cast<size_t>(1 + below(1500)), below(5)));
      memory.know(next, *prompt);
      if (scheduler.submit({next, "p", below(2), prompt})) left[next] = prompt->size();
      ++next;
    }
    const SchedStep step = scheduler.next(memory);
    for (uint64_t id : step.failed) left.erase(id);
    std::vector<uint64_t> ready = step.decodes;
    for (const auto& chunk : step.chunks)
      if (chunk.last) ready.push_back(chunk.id);
    for (uint64_t id : ready) {
      if (below(30) == 0) {
        scheduler.remove(id, memory);
        left.erase(id);
      } else {
        scheduler.sampled(id);
      }
    }
    if (below(20) == 0 && scheduler.running() > 1) {
      const auto began = std::find_if(step.chunks.begin(), step.chunks.end(), [&](const auto& c) { return !c.last; });
      if (began != step.chunks.end() && left.contains(began->id)) {
        ASSERT_TRUE(scheduler.postpone(began->id, memory));
      }
    }
    if (!left.empty() && below(10) == 0) {
      const auto it = std::next(left.begin(), below(static_cast<int>(left.size())));
      scheduler.remove(it->first, memory);
      scheduler.remove(it->first, memory);
      left.erase(it);
    }
    ASSERT_EQ(scheduler.waiting() + scheduler.running(), left.size());
  }
  for (const auto& [id, tokens] : left) scheduler.remove(id, memory);
  EXPECT_EQ(memory.held(), 0u);
  EXPECT_TRUE(scheduler.next(memory).empty());
}

}  // namespace
}  // namespace godwit
