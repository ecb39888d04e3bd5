#include "eval/load/workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace godwit::load {
namespace {

WorkloadOptions options_of(const char* prompt, const char* output) {
  WorkloadOptions options;
  options.prompt = *Lengths::parse(prompt);
  options.output = *Lengths::parse(output);
  return options;
}

std::vector<Request> all_of(Workload workload) {
  std::vector<Request> list;
  while (auto request = workload.next()) list.push_back(*request);
  return list;
}

TEST(Workload, ArrivalsArePoisson) {
  WorkloadOptions options = options_of("8", "8");
  options.rate = 50;
  options.requests = 20000;
  const std::vector<Request> list = all_of(Workload(options));
  ASSERT_EQ(list.size(), 20000U);
  double sum = 0, squares = 0, before = 0;
  std::map<int, int> in_second;
  for (const Request& r : list) {
    const double gap = r.arrival_seconds - before;
    ASSERT_GE(gap, 0);
    before = r.arrival_seconds;
    sum += gap, squares += gap * gap;
    ++in_second[static_cast<int>(r.arrival_seconds)];
  }
  const double mean = sum / 20000;
  EXPECT_NEAR(mean, 0.02, 0.0006);                                          // 4 standard errors
  EXPECT_NEAR(std::sqrt(squares / 20000 - mean * mean) / mean, 1.0, 0.03);  // as an exponential's
  // Counts in a second vary as much as their mean, which even spacing would not.
  double counts = 0, variance = 0;
  const int seconds = static_cast<int>(before);
  for (int i = 0; i < seconds; ++i) counts += in_second[i];
  for (int i = 0; i < seconds; ++i) variance += std::pow(in_second[i] - counts / seconds, 2);
  EXPECT_NEAR(variance / counts, 1.0, 0.3);
}

TEST(Workload, LengthsFollowTheirDistribution) {
  WorkloadOptions options = options_of("uniform:10,20", "lognormal:100,0.5,400");
  options.requests = 10000;
  std::map<int, int> prompts;
  std::vector<int> outputs;
  for (const Request& r : all_of(Workload(options))) {
    ++prompts[r.prompt_tokens];
    outputs.push_back(r.output_tokens);
    EXPECT_EQ(r.prefix_tokens, 0);
  }
  ASSERT_EQ(prompts.size(), 11U);
  EXPECT_EQ(prompts.begin()->first, 10);
  for (const auto& [length, count] : prompts) EXPECT_NEAR(count, 10000 / 11, 150) << length;
  std::sort(outputs.begin(), outputs.end());
  EXPECT_NEAR(outputs[5000], 100, 3);
  EXPECT_NEAR(outputs[8413], 100 * std::exp(0.5), 8);  // one sigma above
  EXPECT_GE(outputs.front(), 1);
  EXPECT_LE(outputs.back(), 400);
}

TEST(Workload, SeedsDecide) {
  auto lengths = [](uint64_t seed) {
    WorkloadOptions options = options_of("uniform:1,100000", "4");
    options.requests = 50;
    options.seed = seed;
    std::vector<int> list;
    for (const Request& r : all_of(Workload(options))) list.push_back(r.prompt_tokens);
    return list;
  };
  EXPECT_EQ(lengths(1), lengths(1));
  EXPECT_NE(lengths(1), lengths(2));
}

TEST(Workload, NonsenseIsNoLength) {
  for (const char* text :
       {"", "0", "-4", "1.5", "nan", "inf", "1e99", "12x", "uniform:5", "uniform:9,5", "uniform:1,2,3", "uniform:0,4",
        "lognormal:100,0.5", "lognormal:100,-1,200", "lognormal:,,", "normal:1,2"}) {
    const auto lengths = Lengths::parse(text);
    ASSERT_FALSE(lengths) << text;
    EXPECT_NE(lengths.error().message.find("uniform:LEAST,MOST"), std::string::npos);
  }
}

TEST(Workload, SharedPrefixesAreWordForWordAndTheRestIsNot) {
  WorkloadOptions options = options_of("40", "4");
  options.prefixes = 3, options.prefix_tokens = 100, options.requests = 60;
  const PromptMaker prompts{.seed = 7, .tokens_per_word = 2, .tokens_around = 10};
  std::set<std::string> prefixes, whole;
  uint64_t index = 0;
  for (const Request& r : all_of(Workload(options))) {
    EXPECT_EQ(r.prompt_tokens, 140);
    const std::string text = prompts.make(r, index++);
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), (140 - 10) / 2);
    size_t end = 0;
    for (int word = 0; word <= 50; ++word) end = text.find(' ', end + (word > 0 ? 1 : 0));
    prefixes.insert(text.substr(0, end));
    whole.insert(text);
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(whole.size(), 60U);
}

TEST(Trace, IsRead) {
  const auto trace = parse_trace(
      R"({"arrival": 0.5, "prompt_tokens": 100, "output_tokens": 7}

{"arrival": 0.5, "prompt_tokens": 300, "output_tokens": 8, "prefix": "system", "prefix_tokens": 200, "other": []}
{"arrival": 2, "prompt_tokens": 300, "output_tokens": 9, "prefix": 4, "prefix_tokens": 300}
{"arrival": 3, "prompt_tokens": 250, "output_tokens": 9, "prefix": "system", "prefix_tokens": 200})",
      "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->size(), 4U);
  EXPECT_EQ((*trace)[0].prompt_tokens, 100);
  EXPECT_EQ((*trace)[0].prefix_tokens, 0);
  EXPECT_EQ((*trace)[2].arrival_seconds, 2);
  EXPECT_EQ((*trace)[1].prefix, (*trace)[3].prefix);
  EXPECT_NE((*trace)[1].prefix, (*trace)[2].prefix);
}

TEST(Trace, ErrorsNameTheLine) {
  const std::string good = R"({"arrival": 5, "prompt_tokens": 1, "output_tokens": 1})";
  const std::pair<const char*, const char*> cases[] = {
      {"[1, 2]", "object"},
      {"{", "line 2"},
      {R"({"prompt_tokens": 1, "output_tokens": 1})", "arrival"},
      {R"({"arrival": 4, "prompt_tokens": 1, "output_tokens": 1})", "never falls"},
      {R"({"arrival": 1e300, "prompt_tokens": 1, "output_tokens": 1})", "arrival"},
      {R"({"arrival": 6, "prompt_tokens": 0, "output_tokens": 1})", "prompt_tokens"},
      {R"({"arrival": 6, "prompt_tokens": 1, "output_tokens": 99999999999})", "output_tokens"},
      {R"({"arrival": 6, "prompt_tokens": 1.5, "output_tokens": 1})", "prompt_tokens"},
      {R"({"arrival": 6, "prompt_tokens": 9, "output_tokens": 1, "prefix": 1})", "prefix_tokens"},
      {R"({"arrival": 6, "prompt_tokens": 9, "output_tokens": 1, "prefix": 1, "prefix_tokens": 10})", "more than"},
      {R"({"arrival": 6, "prompt_tokens": 9, "output_tokens": 1, "prefix": [], "prefix_tokens": 1})", "prefix"},
  };
  for (const auto& [line, word] : cases) {
    const auto trace = parse_trace(good + "\n" + line, "t.jsonl");
    ASSERT_FALSE(trace) << line;
    EXPECT_NE(trace.error().message.find("t.jsonl, line 2"), std::string::npos) << trace.error().message;
    EXPECT_NE(trace.error().message.find(word), std::string::npos) << trace.error().message;
  }
  EXPECT_FALSE(parse_trace("\n \n", "t.jsonl"));
}

}  // namespace
}  // namespace godwit::load
