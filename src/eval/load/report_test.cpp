#include "eval/load/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace godwit::load {
namespace {

TEST(Histogram, PercentilesAreNearestRanks) {
  Histogram h;
  EXPECT_EQ(h.percentile(0.5), 0);
  for (int i = 1000; i >= 1; --i) h.add(i * 1e-3);
  EXPECT_NEAR(h.percentile(0.5), 0.5, 0.005);
  EXPECT_NEAR(h.percentile(0.9), 0.9, 0.009);
  EXPECT_NEAR(h.percentile(0.99), 0.99, 0.0099);
  EXPECT_EQ(h.percentile(1), 1.0);
  EXPECT_NEAR(h.percentile(0), 0.001, 1e-5);
  EXPECT_NEAR(h.mean(), 0.5005, 1e-9);
  EXPECT_EQ(h.count(), 1000U);
}

TEST(Histogram, BearsWhateverComes) {
  Histogram h;
  for (double x : {0.0, -1.0, 1e300, 1e-300}) h.add(x);
  EXPECT_EQ(h.most(), 1e300);
  EXPECT_EQ(h.percentile(1), 1e300);
  Histogram one;
  one.add(0.25);
  for (double share : {0.0, 0.5, 0.99, 1.0}) EXPECT_EQ(one.percentile(share), 0.25);
}

TEST(Histogram, CdfRisesToOne) {
  Histogram h;
  for (double x : {0.1, 0.2, 0.2, 0.4}) h.add(x);
  const auto points = h.cdf();
  ASSERT_EQ(points.size(), 3U);
  EXPECT_NEAR(points[0].second, 0.25, 1e-12);
  EXPECT_NEAR(points[1].second, 0.75, 1e-12);
  EXPECT_NEAR(points[1].first, 0.2, 0.002);
  EXPECT_EQ(points[2].second, 1.0);
}

Record answer(double sent, double ttft, double per_token, int64_t tokens, int64_t cached = 0) {
  const double first = sent + ttft, last = first + per_token * static_cast<double>(tokens - 1);
  return {.planned = sent,
          .sent = sent,
          .first = first,
          .last = last,
          .end = last,
          .prompt_tokens = 100,
          .cached_tokens = cached,
          .output_tokens = tokens,
          .ok = true};
}

LoadRun example() {
  LoadRun run;
  run.records = {answer(0, 0.1, 0.01, 11), answer(1, 0.1, 0.05, 11), answer(2, 0.5, 0.01, 11),
                 answer(3, 0.01, 0.01, 1, 90)};
  run.records.push_back({.planned = 4, .sent = 4, .end = 4.1});
  run.failures["http 429"] = {1, "the queue is <full>"};
  for (int i = 0; i < 100; ++i) run.gaps.add(0.02), run.loop_lag.add(1e-4), run.send_lag.add(1e-4);
  run.tokens_in_bin.resize(40, 1);
  run.seconds = 5;
  return run;
}

TEST(Report, GoodputCountsAnswersWithinBothTargets) {
  const LoadRun run = example();
  EXPECT_EQ(summarize(run, {}).good, 4);
  EXPECT_EQ(summarize(run, {.ttft_seconds = 0.2}).good, 3);
  EXPECT_EQ(summarize(run, {.per_token_seconds = 0.02}).good, 3);
  const Targets both{.ttft_seconds = 0.2, .per_token_seconds = 0.02};
  const Summary s = summarize(run, both);
  EXPECT_EQ(s.good, 2);
  EXPECT_EQ(s.answered, 4);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.output_tokens, 34);
  EXPECT_EQ(s.ttft_cached.count(), 1U);
  EXPECT_EQ(s.ttft_cold.count(), 3U);
  const auto json = load_json(run, s, both, {});
  EXPECT_DOUBLE_EQ(json["goodput"]["share"], 0.4);  // of all that was asked, failures included
  EXPECT_DOUBLE_EQ(json["goodput"]["requests_per_second"], 0.4);
  EXPECT_DOUBLE_EQ(json["output_tokens_per_second"], 34 / 5.0);
  EXPECT_EQ(json["errors"][0]["kind"], "http 429");
  EXPECT_TRUE(json["generator"]["kept_up"]);
}

TEST(Report, ALateGeneratorSaysSo) {
  LoadRun run = example();
  for (int i = 0; i < 10; ++i) run.send_lag.add(0.2);
  EXPECT_NE(summarize(run, {}).lagged.find("200 ms"), std::string::npos);
  run = example();
  for (int i = 0; i < 10; ++i) run.loop_lag.add(0.05);
  const Summary s = summarize(run, {});
  EXPECT_NE(s.lagged.find("50 ms"), std::string::npos);
  EXPECT_FALSE(load_json(run, s, {}, {})["generator"]["kept_up"]);
  EXPECT_NE(load_table(run, s, {}, {}).find("did not keep up"), std::string::npos);
}

TEST(Report, PageIsSelfContainedAndEscaped) {
  const LoadRun run = example();
  const Targets targets{.ttft_seconds = 0.2};
  const Heading heading{.url = "http://x", .model = "<b>m</b>", .api = "chat", .workload = "w"};
  const std::string html = load_html(run, summarize(run, targets), targets, heading);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_EQ(html.find("<full>"), std::string::npos);
  EXPECT_NE(html.find("the queue is &lt;full&gt;"), std::string::npos);
  for (const char* outside : {"src=", "href=", "url(", "<script", "nan", "inf "})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  size_t plots = 0;
  for (size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1)) ++plots;
  EXPECT_EQ(plots, 6U);
}

}  // namespace
}  // namespace godwit::load
