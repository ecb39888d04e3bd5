// Users who ask again as soon as they are answered, in simulated time: how long the unluckiest of them waits.
#include <random>

#include "sched/scheduler_testing.h"

namespace godwit {
namespace {

// 64 of them: prompts that begin with one of four texts of 512 tokens and go on for 1 to 4,096, answers of 1 to 128.
class Users {
 public:
  Users(size_t kv_tokens, uint32_t seed) : simulation({.most_running = 32}, kv_tokens), random_(seed) {
    simulation.ended = [this](const Job&) { ask(); };
    for (int i = 0; i < 64; ++i) ask();
  }

  // From the request to its first token, shortest first.
  std::vector<double> first_tokens() {
    simulation.run();
    expect_all_done(simulation);
    std::vector<double> list;
    for (const Job& job : simulation.jobs) list.push_back(job.first - job.arrival);
    std::sort(list.begin(), list.end());
    return list;
  }

  Simulation simulation;

 private:
  static constexpr int32_t kRequests = 1500;

  size_t lognormal(double median, double sigma, double most) {
    const double value = median * std::exp(std::normal_distribution<double>(0, sigma)(random_));
    return static_cast<size_t>(std::clamp(value, 1.0, most));
  }
  void ask() {
    if (++asked_ > kRequests) return;
    Tokens prompt = text(512, static_cast<int32_t>(random_() % 4));
    const Tokens own = text(lognormal(128, 1, 4096), 4 + asked_);
    prompt.insert(prompt.end(), own.begin(), own.end());
    simulation.add(simulation.now, std::move(prompt), lognormal(24, 0.6, 128));
  }

  std::mt19937 random_;
  int32_t asked_ = 0;
};

TEST(SchedulerUsers, NobodyWaitsMuchLongerThanMost) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    const auto waits = Users(1 << 20, seed).first_tokens();
    EXPECT_LE(waits.back(), 3 * waits[waits.size() / 2]) << seed;
  }
}

// A prompt of 4,608 tokens where 12,000 fit: there is always room for a shorter one before there is for it.
TEST(SchedulerUsers, NorWhereMemoryIsScarceAndTheRequestIsLong) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    const auto waits = Users(12000, seed).first_tokens();
    EXPECT_LE(waits.back(), 3 * waits[waits.size() / 2]) << seed;
  }
}

}  // namespace
}  // namespace godwit
