#include "server/metrics.h"

#include <gtest/gtest.h>

namespace godwit::server {
namespace {

TEST(Histogram, CountsWhatIsAtMostEachBound) {
  Histogram histogram({1, 2, 5});
  for (double value : {0.5, 1.0, 1.5, 5.0, 9.0}) histogram.add(value);
  std::string text;
  histogram.write(text, "h", "Help.", "a=\"b\"");
  EXPECT_EQ(text,
            "# HELP h Help.\n# TYPE h histogram\n"
            "h_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2\"} 3\nh_bucket{a=\"b\",le=\"5\"} 4\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 5\nh_sum{a=\"b\"} 17\nh_count{a=\"b\"} 5\n");
}

TEST(Metrics, AddUp) {
  Metrics metrics;
  ServiceAnswer answer;
  answer.prompt_tokens = 10;
  answer.cached_tokens = 4;
  answer.completion_tokens = 3;
  metrics.answer_over(answer, {.waited = 0.1, .first_token = 0.3, .end = 1.3});
  answer.error = "broken";
  metrics.answer_over(answer, {});
  RequestRecord record;
  record.status = 200;
  metrics.request_over(record, "/v1/models");
  ServiceStats stats;
  stats.running = 2;
  stats.kv_bytes_in_use = 25;
  stats.kv_budget_bytes = 100;
  stats.prefix_state_bytes = 7;
  stats.ranks = 3;
  const std::string text = metrics.text("a \"model\"", &stats);
  for (const char* line :
       {"godwit:num_requests_running{model_name=\"a \\\"model\\\"\"} 2\n",
        "godwit:kv_cache_usage_perc{model_name=\"a \\\"model\\\"\"} 0.25\n", "\nprocess_cpu_seconds_total ",
        "\ngodwit:cpu_wait_seconds_total{model_name=", "prefix_cache_state_bytes{model_name=\"a \\\"model\\\"\"} 7\n",
        "prefix_cache_hits_total{model_name=\"a \\\"model\\\"\"} 8\n", "finished_reason=\"stop\"} 1\n",
        "finished_reason=\"error\"} 1\n", "godwit:ranks{model_name=\"a \\\"model\\\"\"} 3\n",
        "handler=\"/v1/models\",status=\"200\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(metrics.text("m", nullptr).find("num_requests_running"), std::string::npos);
}

}  // namespace
}  // namespace godwit::server
