#include "plan/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/paper.h"

namespace godwit::plan {
namespace {

PlanReport report_of(std::vector<int> degrees) {
  PlanRequest request = paper_request(128000, 0, 8, 1);
  request.model.name = "a<b>&c";
  request.mode = dist::RingMode::kPassKv;
  PlanReport report{request.model, request.device, request.link, "bf16", {}, {}};
  for (int cp : degrees) {
    request.cp = cp;
    report.rows.push_back({request.new_tokens, request.cached_tokens, *make_plan(request)});
  }
  return report;
}

TEST(PlanReport, ColumnsLineUp) {
  const std::string table = plan_table(report_of({1, 16}));
  std::vector<std::string> lines;
  for (size_t at = table.find("\n|") + 1; table[at] == '|'; at = table.find('\n', at) + 1)
    lines.push_back(table.substr(at, table.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 4U);
  for (const std::string& line : lines) EXPECT_EQ(line.size(), lines[0].size()) << table;
  EXPECT_NE(table.find("5 fitted (matmul_tflops"), std::string::npos) << table;
  EXPECT_NE(table.find("too much"), std::string::npos) << "128K activations at once on one node";
}

TEST(PlanReport, TargetsNameTheDegreesOrThatThereAreNone) {
  PlanReport report = report_of({1, 2, 4, 8});
  report.targets = {6.0, 0.065};
  const std::string table = plan_table(report);
  EXPECT_NE(table.find("TTFT of 6.00 s: TP8 x CP8, 64 devices"), std::string::npos) << table;
  EXPECT_NE(table.find("TTIT of 65.0 ms: TP8 x CP2, 16 devices"), std::string::npos) << table;
  EXPECT_NE(table.find("both at once: none"), std::string::npos) << table;
  const auto json = plan_json(report);
  ASSERT_EQ(json["targets"].size(), 3U);
  EXPECT_EQ(json["targets"][0]["cp"], 8);
  EXPECT_TRUE(json["targets"][2]["cp"].is_null());
}

TEST(PlanReport, JsonHoldsWhatTheTableRounds) {
  const PlanReport report = report_of({4});
  const auto json = plan_json(report);
  EXPECT_EQ(json["rows"][0]["ttft_seconds"], report.rows[0].result.prefill.seconds);
  EXPECT_EQ(json["rows"][0]["mode"], "pass-kv");
  EXPECT_EQ(json["hardware"]["constants"]["matmul_tflops"]["source"], "fitted");
  EXPECT_EQ(json["link"]["name"], "rdma-400");
  EXPECT_TRUE(plan_json(report_of({1}))["link"].is_null()) << "nothing goes over it";
}

TEST(PlanReport, ThePageLoadsNothingAndTrustsNoName) {
  const std::string page = plan_html(report_of({1, 2, 4}));
  EXPECT_EQ(page.find("a<b>"), std::string::npos);
  EXPECT_NE(page.find("a&lt;b&gt;&amp;c"), std::string::npos);
  for (const char* word : {"<script", "src=", "href=", "http"}) EXPECT_EQ(page.find(word), std::string::npos) << word;
  size_t plots = 0;
  for (size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1)) ++plots;
  EXPECT_EQ(plots, 5U);
  EXPECT_NE(page.find("CP4 pass-kv: 10.9"), std::string::npos);
}

TEST(PlanReport, OperatorsAddUp) {
  const std::string table = ops_table(report_of({4}).rows[0]);
  for (const char* word : {"| attention", "| feed-forward", "| all-reduce", "| waiting", "one token after 128000"})
    EXPECT_NE(table.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace godwit::plan
