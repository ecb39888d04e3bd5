#include "plan/ring_sim.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace godwit::plan {
namespace {

using dist::RingMode;

// All ranks alike: a step of `attention_s`, messages that take what the link's 1 byte per second makes of them.
RingLayer even_layer(size_t ranks, double attention_s, double kv_bytes, double q_bytes, double partial_bytes) {
  RingLayer layer;
  layer.ranks = ranks;
  layer.before_s.assign(ranks, 0);
  layer.after_s.assign(ranks, 0);
  layer.attention_s.assign(ranks * ranks, attention_s);
  layer.merge_step_s.assign(ranks, 0);
  layer.merge_all_s.assign(ranks, 0);
  layer.kv_bytes.assign(ranks, kv_bytes);
  layer.q_bytes.assign(ranks, q_bytes);
  layer.partial_bytes.assign(ranks, partial_bytes);
  layer.slowness.assign(ranks, 1);
  return layer;
}

Link test_link() {
  Link link;
  link.send_s = 0.25, link.send_bytes_per_s = 1;
  link.exchange_s = 0.5, link.exchange_bytes_per_s = 2;
  return link;
}

double seconds(const RingRun& run) {
  return *std::max_element(run.done_s.begin(), run.done_s.end());
}

// The formula that chooses at run time and the simulation say the same where all ranks carry the same load.
TEST(RingSim, AgreesWithTheFormulaOnEvenRanks) {
  const Link link = test_link();
  for (size_t ranks : {1, 2, 3, 4, 8, 16})
    for (double kv_bytes : {0.1, 1.0, 3.0, 10.0})
      for (double step_s : {0.0, 0.4})
        for (bool overlapped : {true, false}) {
          RingLayer layer = even_layer(ranks, 2.0, kv_bytes, kv_bytes / 2, kv_bytes / 3);
          layer.step_s = step_s;
          layer.overlapped = overlapped;
          const dist::RingWork work{static_cast<int>(ranks), 2.0, kv_bytes, kv_bytes / 2, kv_bytes / 3};
          const dist::RingConstants constants{link.send(), {0.5, 2}, step_s, overlapped};
          const std::vector<double> entry(ranks, 0.0);
          for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ, RingMode::kAllGather})
            EXPECT_NEAR(seconds(simulate_prefill(layer, mode, link, entry)),
                        dist::ring_mode_seconds(mode, work, constants), 1e-9)
                << ring_mode_name(mode) << " on " << ranks << " ranks, " << kv_bytes << " bytes, step " << step_s;
          EXPECT_NEAR(seconds(simulate_decode(layer, link, entry)), dist::decode_seconds(work, constants), 1e-9);
        }
}

TEST(RingSim, NewKeysAndValuesGoFirstAndMessagesAreHandled) {
  Link link = test_link();
  const std::vector<double> entry(2, 0.0);
  RingLayer layer = even_layer(2, 2.0, 1.0, 0.5, 0.25);
  const auto took = [&](RingMode mode) { return seconds(simulate_prefill(layer, mode, link, entry)); };
  const double pass_kv = took(RingMode::kPassKv), pass_q = took(RingMode::kPassQ),
               gathered = took(RingMode::kAllGather);
  layer.new_kv_bytes = {3, 3};
  const double moved = 0.5 + 3.0 / 2;  // by an exchange, which nothing hides
  EXPECT_NEAR(took(RingMode::kPassKv), pass_kv + moved, 1e-9);
  EXPECT_NEAR(took(RingMode::kPassQ), pass_q + moved, 1e-9);
  link.handled_bytes_per_s = 10;
  const double new_ones = (3 + 3) / 10.0;  // sent and received
  EXPECT_NEAR(took(RingMode::kPassKv), pass_kv + moved + new_ones + (1 + 1) / 10.0, 1e-9);
  EXPECT_NEAR(took(RingMode::kAllGather), gathered + moved + new_ones + (1 + 1) / 10.0, 1e-9);
  EXPECT_NEAR(took(RingMode::kPassQ), pass_q + moved + new_ones + (0.5 + 0.5 + 0.25 + 0.25) / 10.0, 1e-9);
  layer.new_kv_bytes = {4, 0};  // one rank has all rows: the other receives
  link.handled_bytes_per_s = 0;
  EXPECT_NEAR(took(RingMode::kPassKv), pass_kv + 0.5 + 4.0 / 2, 1e-9);
}

TEST(RingSim, WhatIsWaitedForIsWhatTheLinkDoesNotHide) {
  const Link link = test_link();
  const std::vector<double> entry(4, 0.0);
  RingLayer layer = even_layer(4, 2.0, 1.0, 1, 1);
  EXPECT_NEAR(simulate_prefill(layer, RingMode::kPassKv, link, entry).waiting_s[1], 0, 1e-12);
  layer = even_layer(4, 2.0, 3.0, 1, 1);
  const RingRun run = simulate_prefill(layer, RingMode::kPassKv, link, entry);
  for (double waited : run.waiting_s) EXPECT_NEAR(waited, 3 * (3.25 - 2), 1e-9);
  EXPECT_EQ(run.sent_bytes, 4 * 3 * 3.0);
}

TEST(RingSim, OneLongShardSetsThePaceOnlyWhereItIs) {
  const Link link = test_link();
  const std::vector<double> entry(4, 0.0);
  RingLayer layer = even_layer(4, 2.0, 1.0, 1, 1);
  layer.kv_bytes[2] = 5;  // takes 5.25 s: three hops, each behind a step of 2 s
  const double uneven = seconds(simulate_prefill(layer, RingMode::kPassKv, link, entry));
  EXPECT_GT(uneven, 8 + 3.25);             // more than if it came late once
  EXPECT_LT(uneven, 8 + 3 * 3.25 + 1e-9);  // at most as if all messages were as long
  layer.kv_bytes[2] = 0;                   // an empty rank sends nothing
  const RingRun empty = simulate_prefill(layer, RingMode::kPassKv, link, entry);
  EXPECT_NEAR(seconds(empty), 8, 1e-9);
  EXPECT_EQ(empty.sent_bytes, 3 * 3 * 1.0);
}

TEST(RingSim, ASlowRankHoldsUpTheOthers) {
  const Link link = test_link();
  const std::vector<double> entry(4, 0.0);
  RingLayer layer = even_layer(4, 2.0, 1.0, 1, 1);
  layer.slowness[0] = 1.5;
  const RingRun run = simulate_prefill(layer, RingMode::kPassKv, link, entry);
  EXPECT_NEAR(run.done_s[0], 12, 1e-9);
  EXPECT_NEAR(run.waiting_s[0], 0, 1e-9);
  EXPECT_GT(run.waiting_s[1], 1);  // for what the slow one passes on late
}

TEST(RingSim, RanksThatComeLateFindTheOthersWaiting) {
  const Link link = test_link();
  const RingLayer layer = even_layer(3, 2.0, 1.0, 1, 1);
  const RingRun together = simulate_prefill(layer, RingMode::kPassKv, link, {0, 0, 0});
  const RingRun skewed = simulate_prefill(layer, RingMode::kPassKv, link, {0, 4, 0});
  EXPECT_NEAR(seconds(together), 6, 1e-9);
  EXPECT_NEAR(skewed.done_s[1], 10, 1e-9);
  EXPECT_GE(skewed.done_s[2], 4 + 1.25);
  EXPECT_GT(skewed.waiting_s[2], 0);
}

TEST(RingSim, OneQueryHopsAroundTheRing) {
  const Link link = test_link();
  RingLayer layer = even_layer(4, 1.0, 0, 0, 0);
  layer.q_bytes[3] = 0.75;       // one owner: three hops of 1 s
  layer.partial_bytes[3] = 0.5;  // which receives three of them: 0.5 + 1.5 / 2
  const RingRun run = simulate_decode(layer, link, {0, 0, 0, 0});
  EXPECT_NEAR(run.done_s[3], 3 + 1 + 0.5 + 0.75, 1e-9);
  EXPECT_EQ(run.sent_bytes, 3 * 0.75 + 3 * 0.5);
}

}  // namespace
}  // namespace godwit::plan
