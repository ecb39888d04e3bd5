// Requests whose step could not be had after all: no memory now, later yes.
#include <gtest/gtest.h>

#include "sched/scheduler.h"

namespace godwit {
namespace {

using Tokens = std::vector<int32_t>;

struct Memory final : SchedMemory {
  std::map<uint64_t, size_t> held;

  size_t cached(uint64_t) const override { return 0; }
  bool fits(uint64_t, size_t) const override { return true; }
  size_t begin(uint64_t id) override { return held[id] = 0; }
  bool reserve(uint64_t id, size_t tokens) override {
    held.at(id) += tokens;
    return true;
  }
  void release(uint64_t id) override { EXPECT_EQ(held.erase(id), 1u); }
};

struct Postpone : testing::Test {
  Postpone() : scheduler(SchedOptions{.step_tokens = 64, .step_cost = 64}) {}

  void submit(uint64_t id, size_t tokens) {
    EXPECT_TRUE(scheduler.submit({id, "p", 0, std::make_shared<const Tokens>(tokens, static_cast<int32_t>(id))}));
  }
  // Steps until the request's text is computed; says how many of its tokens they computed, the last one sampled.
  size_t until_last(uint64_t id) {
    for (size_t computed = 0;;) {
      const SchedStep step = scheduler.next(memory);
      if (step.empty()) return 0;
      for (uint64_t one : step.decodes) scheduler.sampled(one);
      for (const auto& chunk : step.chunks) {
        if (chunk.last) scheduler.sampled(chunk.id);
        if (chunk.id == id) computed += chunk.tokens;
        if (chunk.id == id && chunk.last) return computed;
      }
    }
  }

  Scheduler scheduler;
  Memory memory;
};

TEST_F(Postpone, APromptIsReadAgainFromItsBeginning) {
  submit(1, 20);
  submit(2, 100);
  ASSERT_EQ(until_last(1), 20u);
  ASSERT_EQ(memory.held.count(2), 1u);  // a part of it is computed
  ASSERT_TRUE(scheduler.postpone(2, memory));
  EXPECT_EQ(memory.held.count(2), 0u);
  EXPECT_EQ(scheduler.running(), 1u);
  EXPECT_EQ(scheduler.waiting(), 1u);
  EXPECT_EQ(until_last(2), 100u);
  EXPECT_EQ(scheduler.running(), 2u);
  EXPECT_EQ(scheduler.waiting(), 0u);
}

TEST_F(Postpone, AnAnswerComesBackWithAllItsTokens) {
  submit(1, 20);
  submit(2, 30);
  ASSERT_EQ(until_last(2), 30u);
  for (int i = 0; i < 5; ++i) {
    const SchedStep step = scheduler.next(memory);
    ASSERT_EQ(step.decodes.size(), 2u);
    for (uint64_t id : step.decodes) scheduler.sampled(id);
  }
  ASSERT_EQ(scheduler.next(memory).decodes.size(), 2u);
  ASSERT_TRUE(scheduler.postpone(2, memory));
  scheduler.sampled(1);
  EXPECT_EQ(until_last(2), 36u);  // 30 of the prompt, one after it, and five
}

TEST_F(Postpone, WhoRunsAloneCannotWaitForOthers) {
  submit(1, 100);
  ASSERT_FALSE(scheduler.next(memory).chunks.at(0).last);
  EXPECT_FALSE(scheduler.postpone(1, memory));
  EXPECT_EQ(scheduler.running(), 1u);
  EXPECT_EQ(memory.held.count(1), 1u);
  scheduler.remove(1, memory);
  EXPECT_TRUE(memory.held.empty());
}

}  // namespace
}  // namespace godwit
