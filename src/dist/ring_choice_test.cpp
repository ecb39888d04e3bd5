#include "dist/ring_choice.h"

#include "dist/ring_testing.h"

namespace godwit::dist {
namespace {

using namespace testing;

// Calls body(ring, transport) on every rank.
void on_rings(const RingCase& c, const TransportOptions& options,
              const std::function<void(RingAttention&, Transport&)>& body) {
  auto links = make_local_links(c.ranks);
  std::vector<std::thread> threads;
  for (auto& link : links)
    threads.emplace_back([&] {
      Transport transport(std::move(link), options);
      ASSERT_TRUE(transport.join());
      RingRank rank(c);
      auto ring = value_of(
          RingAttention::create(transport, rank.pool(), {c.heads, c.kv_heads, c.head_dim, c.max_rows}, c.options));
      body(*ring, transport);
    });
  for (std::thread& thread : threads) thread.join();
}

RingCosts costs_of(double latency_s, double bytes_per_second) {
  RingCosts costs;
  costs.link = {{latency_s, bytes_per_second}, {latency_s, bytes_per_second}, 0, true};
  costs.segment_s = 50e-6;
  costs.row_s = 10e-6;
  return costs;
}

TEST(RingChoice, FewNewTokensSendQueriesAndManySendKeys) {
  RingCase c;
  c.ranks = 4;
  on_rings(c, {}, [&](RingAttention& ring, Transport&) {
    const RingCosts slow = costs_of(20e-6, 100e6);
    EXPECT_EQ(predict(slow, ring, ring.shards(), c.format, {30000, 30001}).mode, RingMode::kPassQ);
    EXPECT_EQ(predict(slow, ring, ring.shards(), c.format, {0, 4000}).mode, RingMode::kPassKv);
    // Where nothing costs to send, one rank's rows are walked by all: sooner done.
    EXPECT_EQ(predict(costs_of(0, 1e15), ring, ring.shards(), c.format, {30000, 30001}).mode, RingMode::kPassQ);
    EXPECT_NEAR(predict(costs_of(0, 1e15), ring, ring.shards(), c.format, {0, 4096}).pass_kv_s,
                16 * (50e-6 + 1024 * 10e-6) / 2, 1e-4);
  });
}

TEST(RingChoice, NewTokensComeFirstAndSequencesShareMessages) {
  RingCase c;
  const double latency = 1e-2;  // far more than all else
  on_rings(c, {}, [&](RingAttention& ring, Transport&) {
    const auto of = [&](int together) {
      return predict(costs_of(latency, 1e15), ring, ring.shards(), c.format, {2000, 2001}, together);
    };
    EXPECT_NEAR(of(1).pass_kv_s, 2 * latency, 1e-3);  // new keys and values, and those that were there
    EXPECT_NEAR(of(1).pass_q_s, 3 * latency, 1e-3);   // new ones, queries and states
    EXPECT_EQ(of(1).mode, RingMode::kPassKv);
    EXPECT_NEAR(of(8).pass_q_s, 3 * latency / 8, 1e-3);
    EXPECT_EQ(of(8).mode, RingMode::kPassQ);
  });
}

TEST(RingChoice, OneStatePerRankMakesQueriesCheaper) {
  RingCase c;
  c.ranks = 4;
  const RingCosts slow = costs_of(20e-6, 10e6);
  double exact = 0, inexact = 0;
  on_rings(c, {}, [&](RingAttention& ring, Transport& transport) {
    if (transport.rank() == 0) exact = predict(slow, ring, ring.shards(), c.format, {30000, 30100}).pass_q_s;
  });
  c.options.exact = false;
  on_rings(c, {}, [&](RingAttention& ring, Transport& transport) {
    if (transport.rank() == 0) inexact = predict(slow, ring, ring.shards(), c.format, {30000, 30100}).pass_q_s;
  });
  EXPECT_LT(inexact, exact / 2);
}

TEST(RingChoice, MeasuresTheLinkItHas) {
  RingCase c;
  c.ranks = 2;
  on_rings(c, {.latency_s = 0.004, .bytes_per_second = 20e6}, [&](RingAttention& ring, Transport& transport) {
    const RingCosts costs = value_of(measure_costs(transport, ring));
    EXPECT_GT(costs.link.send.latency_s, 0.003);
    EXPECT_LT(costs.link.send.latency_s, 0.04);  // a busy machine's threads oversleep
    EXPECT_GT(costs.link.send.bytes_per_second, 4e6);
    EXPECT_LT(costs.link.send.bytes_per_second, 40e6);
    EXPECT_GT(costs.row_s, 0);
  });
}

TEST(RingChoice, FormulasAreWhatIsSent) {
  RingCase c;
  c.ranks = 3;
  c.layers = 1;
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ})
    for (bool exact : {true, false}) {
      c.options.exact = exact;
      c.max_rows = 2000;
      c.shares = exact ? Shares() : Shares{1111, 4096, 2222};
      const RingRun run = together(c, {{{0, 2000}, RingMode::kPassKv}, {{2000, 2100}, mode}});
      ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
      const RingRun first = together(c, {{{0, 2000}, RingMode::kPassKv}});
      double sent[kFrameKinds] = {};
      for (size_t rank = 0; rank < 3; ++rank)
        for (size_t kind = 0; kind < kFrameKinds; ++kind)
          sent[kind] += static_cast<double>(run.traffic[rank][kind].bytes - first.traffic[rank][kind].bytes);
      on_rings(c, {}, [&](RingAttention& ring, Transport& transport) {
        if (transport.rank() > 0) return;
        const Shards shards(c.ranks, c.format.page_tokens, 0, c.ranks, c.shares);
        const RingBytes formula = formula_bytes(ring, shards, c.format, {2000, 2100}, mode);
        EXPECT_EQ(sent[static_cast<size_t>(FrameKind::kPages)], formula.pages);
        EXPECT_EQ(sent[static_cast<size_t>(FrameKind::kQueries)], formula.queries);
        EXPECT_EQ(sent[static_cast<size_t>(FrameKind::kStates)], formula.states) << exact;
        EXPECT_EQ(sent[static_cast<size_t>(FrameKind::kSlots)], formula.slots);
      });
    }
}

}  // namespace
}  // namespace godwit::dist
