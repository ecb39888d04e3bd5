// The scheduler in simulated time: a step lasts as long as it costs.
#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace godwit {
namespace {

using Tokens = std::vector<int32_t>;

// So many tokens fit. Prompts, as far as they were computed, are remembered while there is room, oldest forgotten
// first.
class FakeMemory final : public SchedMemory {
 public:
  explicit FakeMemory(size_t capacity) : capacity_(capacity) {}

  void know(uint64_t id, const Tokens& prompt) { prompts_[id] = prompt; }
  void remember(const Tokens& prompt) {
    for (const Tokens& other : cache_)
      if (other.size() >= prompt.size() && std::equal(prompt.begin(), prompt.end(), other.begin())) return;
    std::erase_if(cache_, [&](const Tokens& other) {
      return other.size() < prompt.size() && std::equal(other.begin(), other.end(), prompt.begin());
    });
    forget_until(prompt.size());
    if (used() + prompt.size() <= capacity_) cache_.push_back(prompt);
  }
  size_t held() const {
    size_t sum = 0;
    for (const auto& [id, tokens] : held_) sum += tokens;
    return sum;
  }

  size_t cached(uint64_t id) const override {
    const Tokens& prompt = prompts_.at(id);
    size_t best = 0;
    for (const Tokens& other : cache_) {
      const auto end = std::mismatch(prompt.begin(), prompt.end() - 1, other.begin(), other.end()).first;
      best = std::max(best, static_cast<size_t>(end - prompt.begin()));
    }
    return best;
  }
  bool fits(uint64_t, size_t tokens) const override { return held() + tokens <= capacity_; }
  size_t begin(uint64_t id) override {
    EXPECT_FALSE(held_.contains(id));
    held_[id] = 0;
    const size_t found = cached(id);
    return reserve(id, found) ? found : 0;
  }
  bool reserve(uint64_t id, size_t tokens) override {
    EXPECT_TRUE(held_.contains(id));
    forget_until(tokens);
    if (used() + tokens > capacity_) return false;
    held_[id] += tokens;
    return true;
  }
  void release(uint64_t id) override { EXPECT_EQ(held_.erase(id), 1u); }

 private:
  size_t used() const {
    size_t sum = held();
    for (const Tokens& prompt : cache_) sum += prompt.size();
    return sum;
  }
  void forget_until(size_t tokens) {
    while (!cache_.empty() && used() + tokens > capacity_) cache_.erase(cache_.begin());
  }

  size_t capacity_;
  std::map<uint64_t, Tokens> prompts_;
  std::map<uint64_t, size_t> held_;
  std::vector<Tokens> cache_;
};

struct Job {
  double arrival = 0;
  SchedRequest request;
  size_t answer = 1;
  // What became of it.
  size_t tokens = 0, computed = 0, sampled = 0;
  double first = -1, end = -1, last_token = -1, longest_gap = 0;
  size_t gave_way = 0;
  bool failed = false;
};

class Simulation {
 public:
  Simulation(const SchedOptions& options, size_t capacity) : scheduler(options), memory(capacity), options_(options) {}

  uint64_t add(double arrival, Tokens prompt, size_t answer, int priority = 0, std::string principal = "p") {
    Job job;
    job.arrival = arrival;
    job.answer = answer;
    job.tokens = prompt.size();
    job.request = {jobs.size(), std::move(principal), priority, std::make_shared<const Tokens>(std::move(prompt))};
    jobs.push_back(std::move(job));
    return jobs.size() - 1;
  }

  void run() {
    std::vector<size_t> order(jobs.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return jobs[a].arrival < jobs[b].arrival; });
    size_t next = 0, idle = 0;
    while (next < order.size() || scheduler.waiting() + scheduler.running() > 0) {
      while (next < order.size() && jobs[order[next]].arrival <= now) arrive(jobs[order[next++]]);
      const SchedStep step = scheduler.next(memory);
      apply(step);
      if (HasFatalFailure()) return;
      if (step.empty() && next < order.size() && scheduler.waiting() + scheduler.running() == 0)
        now = std::max(now, jobs[order[next]].arrival);
      idle = step.empty() && step.failed.empty() && next == order.size() ? idle + 1 : 0;
      ASSERT_LT(idle, 3u) << "stuck with " << scheduler.running() << " running, " << scheduler.waiting() << " waiting";
      ++steps;
    }
    EXPECT_EQ(memory.held(), 0u);
  }

  Scheduler scheduler;
  FakeMemory memory;
  std::vector<Job> jobs;
  double now = 0, longest_step = 0;
  size_t steps = 0, refused = 0, most_running = 0;

 private:
  static bool HasFatalFailure() { return testing::Test::HasFatalFailure(); }

  void arrive(Job& job) {
    memory.know(job.request.id, *job.request.prompt);
    if (scheduler.submit(job.request)) return;
    ++refused;
    job.failed = true;
  }

  void apply(const SchedStep& step) {
    now += step.cost;
    longest_step = std::max(longest_step, step.cost);
    most_running = std::max(most_running, scheduler.running());
    std::set<uint64_t> seen;
    for (uint64_t id : step.gave_way) {
      ++jobs[id].gave_way;
      jobs[id].computed = 0;
    }
    for (uint64_t id : step.failed) jobs[id].failed = true;
    size_t prompt_tokens = 0;
    for (const auto& chunk : step.chunks) {
      Job& job = jobs[chunk.id];
      ASSERT_TRUE(seen.insert(chunk.id).second);
      ASSERT_GE(chunk.begin, job.computed);  // from where it is, or what was cached
      if (chunk.begin > job.computed) {
        ASSERT_TRUE(std::count(step.began.begin(), step.began.end(), chunk.id) > 0 || job.computed == 0);
      }
      job.computed = chunk.begin + chunk.tokens;
      ASSERT_LE(job.computed, job.tokens);
      ASSERT_EQ(chunk.last, job.computed == job.tokens);
      if (const size_t piece = job.request.piece_tokens, prompt_end = job.request.prompt->size(); piece > 0) {
        const size_t end = std::min(chunk.begin - chunk.begin % piece + piece, prompt_end);
        ASSERT_EQ(job.computed, chunk.begin < prompt_end ? end : chunk.begin + 1);
      }
      prompt_tokens += chunk.tokens;
      const Tokens& prompt = *job.request.prompt;
      memory.remember(
          Tokens(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(std::min(job.computed, prompt.size()))));
      if (chunk.last) token(job);
    }
    ASSERT_LE(prompt_tokens, options_.step_tokens);
    for (uint64_t id : step.decodes) {
      Job& job = jobs[id];
      ASSERT_TRUE(seen.insert(id).second);
      ASSERT_EQ(++job.computed, job.tokens);
      token(job);
    }
  }

  void token(Job& job) {
    ASSERT_LT(job.end, 0) << "a token after the end";
    if (job.first < 0) job.first = now;
    if (job.last_token >= 0) job.longest_gap = std::max(job.longest_gap, now - job.last_token);
    job.last_token = now;
    ++job.sampled;
    if (job.sampled == job.answer) {
      job.end = now;
      scheduler.remove(job.request.id, memory);
      return;
    }
    scheduler.sampled(job.request.id);
    ++job.tokens;
  }

  SchedOptions options_;
};

Tokens text(size_t length, int32_t seed) {
  Tokens tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = seed * 100000 + static_cast<int32_t>(i);
  return tokens;
}

void expect_all_done(const Simulation& s) {
  for (const Job& job : s.jobs) {
    EXPECT_FALSE(job.failed) << job.request.id;
    EXPECT_EQ(job.sampled, job.answer) << job.request.id;
    EXPECT_GE(job.end, job.first);
  }
}

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
