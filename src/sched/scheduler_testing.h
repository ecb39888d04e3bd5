// The scheduler in simulated time, for tests: a step lasts as long as it costs.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "sched/scheduler.h"

namespace godwit {

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
    arrivals_.emplace(arrival, jobs.size() - 1);
    return jobs.size() - 1;
  }

  void run() {
    size_t idle = 0;
    while (!arrivals_.empty() || scheduler.waiting() + scheduler.running() > 0) {
      while (!arrivals_.empty() && arrivals_.begin()->first <= now) {
        arrive(jobs[arrivals_.begin()->second]);
        arrivals_.erase(arrivals_.begin());
      }
      const SchedStep step = scheduler.next(memory);
      apply(step);
      if (HasFatalFailure()) return;
      if (step.empty() && !arrivals_.empty() && scheduler.waiting() + scheduler.running() == 0)
        now = std::max(now, arrivals_.begin()->first);
      idle = step.empty() && step.failed.empty() && arrivals_.empty() ? idle + 1 : 0;
      ASSERT_LT(idle, 3u) << "stuck with " << scheduler.running() << " running, " << scheduler.waiting() << " waiting";
      ++steps;
    }
    EXPECT_EQ(memory.held(), 0u);
  }

  Scheduler scheduler;
  FakeMemory memory;
  std::deque<Job> jobs;                   // which stay where they are
  std::function<void(const Job&)> ended;  // may add more
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
      if (ended) ended(job);
      return;
    }
    scheduler.sampled(job.request.id);
    ++job.tokens;
  }

  SchedOptions options_;
  std::multimap<double, size_t> arrivals_;  // of jobs, by time
};

inline Tokens text(size_t length, int32_t seed) {
  Tokens tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = seed * 100000 + static_cast<int32_t>(i);
  return tokens;
}

inline void expect_all_done(const Simulation& s) {
  for (const Job& job : s.jobs) {
    EXPECT_FALSE(job.failed) << job.request.id;
    EXPECT_EQ(job.sampled, job.answer) << job.request.id;
    EXPECT_GE(job.end, job.first);
  }
}

}  // namespace godwit
