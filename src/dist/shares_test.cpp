// Who is slow gets less, until all are busy equally long; who is alike gets alike.
#include "dist/shares.h"

#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "dist/local_link.h"
#include "dist/shard.h"

namespace godwit::dist {
namespace {

// Ranks that take `fixed` and then a part of `row` for each row, divided by how quick they are.
struct Machines {
  std::vector<double> speed;
  double fixed_ns = 0, row_ns = 1e6;

  std::vector<int64_t> busy_ns(const std::vector<int32_t>& rows) const {
    std::vector<int64_t> busy;
    for (size_t i = 0; i < rows.size(); ++i)
      busy.push_back(static_cast<int64_t>((fixed_ns + row_ns * rows[i]) / speed[i]));
    return busy;
  }
};

std::vector<int32_t> rows_of(const Shares& shares, int ranks, int most_rows) {
  const Shards shards(ranks, 64, 0, ranks, shares);
  const int32_t tokens = shards.step_tokens(most_rows);
  std::vector<int32_t> rows;
  for (int rank = 0; rank < ranks; ++rank) rows.push_back(size_of(shards.rows(rank, {0, tokens})));
  return rows;
}

struct Dealt {
  Shares speeds, shares;

  // Rows after so many steps.
  std::vector<int32_t> after(const Machines& machines, int steps, int most_rows = 512) {
    const auto ranks = static_cast<int>(machines.speed.size());
    for (int i = 0; i < steps; ++i) {
      const auto rows = rows_of(shares, ranks, most_rows);
      speeds = next_speeds(speeds, rows, machines.busy_ns(rows));
      shares = shares_for(speeds, shares);
    }
    return rows_of(shares, ranks, most_rows);
  }
};

TEST(Shares, RowsFollowSpeeds) {
  EXPECT_EQ(shares_for({}, {}), Shares());
  const auto rows = Dealt().after({{1, 0.5, 0.8, 1}}, 8);
  EXPECT_EQ(rows[0], 512);
  EXPECT_NEAR(rows[1], 256, 4);
  EXPECT_NEAR(rows[2], 410, 5);
  EXPECT_NEAR(rows[3], 512, 4);
}

TEST(Shares, OneStepGoesHalfTheWay) {
  const std::vector<int32_t> rows = {512, 512};
  const std::vector<int64_t> busy = {1'000'000'000, 2'000'000'000};
  const Shares once = next_speeds({}, rows, busy);
  EXPECT_EQ(once[0], kWholeShare);
  EXPECT_NEAR(once[1], kWholeShare * 5 / 7, 8);  // 1 and 1, and 4/3 and 2/3
}

// What a pass takes however few its rows are: who is slow has to be given fewer rows yet.
TEST(Shares, AllAreBusyEquallyLong) {
  const Machines machines{{1, 0.6, 0.9}, 1e8};
  const auto rows = Dealt().after(machines, 30);
  const auto busy = machines.busy_ns(rows);
  for (int64_t one : busy) EXPECT_NEAR(static_cast<double>(one) / static_cast<double>(busy[0]), 1, 0.02);
}

TEST(Shares, WhoIsNearlyAlikeGetsAlike) {
  Dealt dealt;
  EXPECT_EQ(dealt.after({{1, 0.94, 0.98, 1.01}}, 10), std::vector<int32_t>(4, 512));
  EXPECT_EQ(dealt.shares, Shares());
  // A difference that shows only after some steps is not forgotten in between.
  EXPECT_NEAR(Dealt().after({{1, 0.9}}, 10)[1], 461, 4);
}

TEST(Shares, WhatDifferedMustBeAlikeToBeDealtAlike) {
  Dealt dealt;
  EXPECT_EQ(dealt.after({{1, 0.94}}, 10)[1], 512);
  EXPECT_NEAR(dealt.after({{1, 0.7}}, 10)[1], 358, 4);
  EXPECT_NEAR(dealt.after({{1, 0.94}}, 10)[1], 481, 4);
  EXPECT_EQ(dealt.after({{1, 0.98}}, 10)[1], 512);
}

TEST(Shares, WhoBecomesQuickAgainGetsAsMuchAgain) {
  for (int most_rows : {64, 512}) {
    Dealt dealt;
    const auto rows = dealt.after({{1, 0.01}}, 20, most_rows);
    EXPECT_NEAR(rows[1], rows[0] / 8, 2);  // nobody gets nothing: how would one know?
    EXPECT_EQ(dealt.after({{1, 1}}, 20, most_rows), std::vector<int32_t>(2, most_rows));
  }
}

TEST(Shares, ARankWithoutRowsKeepsItsOwn) {
  const Shares before = {kWholeShare, kWholeShare, kWholeShare / 2};
  const std::vector<int32_t> rows = {300, 300, 0};
  const std::vector<int64_t> busy = {300'000'000, 300'000'000, 5};
  EXPECT_EQ(next_speeds(before, rows, busy), before);
  const std::vector<int64_t> slow = {300'000'000, 600'000'000, 5};
  const Shares now = next_speeds(before, rows, slow);
  EXPECT_LT(now[1], now[0]);
  EXPECT_NEAR(static_cast<double>(now[2]) / (now[0] + now[1]), 0.25, 0.01);
}

TEST(Shares, WhatSaysNothingChangesNothing) {
  const Shares before = {kWholeShare, 3000};
  const std::vector<int64_t> busy = {1, 1'000'000};
  EXPECT_EQ(next_speeds(before, std::vector<int32_t>{31, 31}, busy), before);  // a few rows
  EXPECT_EQ(next_speeds(before, std::vector<int32_t>{500, 0}, busy), before);  // one rank alone
  EXPECT_NE(next_speeds(before, std::vector<int32_t>{32, 32}, busy), before);
}

TEST(Shares, TimesOfADayAndOfNothingAreShares) {
  for (int64_t one : {int64_t{0}, int64_t{1}, int64_t{86'400} * 1'000'000'000})
    for (int64_t other : {int64_t{0}, int64_t{1}, int64_t{86'400} * 1'000'000'000}) {
      const Shares speeds = next_speeds({}, std::vector<int32_t>{1 << 20, 1 << 20}, std::vector<int64_t>{one, other});
      EXPECT_EQ(*std::max_element(speeds.begin(), speeds.end()), kWholeShare);
      EXPECT_GE(*std::min_element(speeds.begin(), speeds.end()), kLeastShare);
    }
}

// What ranks hear, when rank 1 says such a time.
std::vector<Status> hear(int64_t said_ns, std::vector<std::vector<int64_t>>& heard) {
  auto links = make_local_links(3);
  std::vector<Status> statuses(3);
  heard.assign(3, {});
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      Transport transport(std::move(links[i]));
      ASSERT_TRUE(transport.join());
      if (i == 1) {
        std::vector<std::byte> all;
        statuses[i] = transport.all_gather(FrameKind::kReply, std::as_bytes(std::span(&said_ns, 1)), all);
      } else {
        statuses[i] = gather_busy(transport, static_cast<int64_t>(i) * 1000, heard[i]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(Shares, TimesThatCannotBeAreRefused) {
  std::vector<std::vector<int64_t>> heard;
  for (const Status& status : hear(77, heard)) EXPECT_TRUE(status.has_value());
  EXPECT_EQ(heard[0], (std::vector<int64_t>{0, 77, 2000}));
  EXPECT_EQ(heard[2], heard[0]);
  for (int64_t said : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
    const auto statuses = hear(said, heard);
    for (size_t rank : {size_t{0}, size_t{2}}) {
      ASSERT_FALSE(statuses[rank].has_value()) << said;
      EXPECT_NE(statuses[rank].error().message.find("rank 1 says"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace godwit::dist
