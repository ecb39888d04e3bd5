// Sweeps: full attention is what everything is measured against, rows that are there are not run again, and a report
// holds them all.
#include "eval/sweep.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "engine/test_engine.h"
#include "eval/sweep_report.h"

namespace godwit {
namespace {

using namespace engine_test;

std::string book() {
  return journal(600);
}

SweepOptions small() {
  SweepOptions options;
  options.engine = options_for("qwen3");
  options.engine.prefill_chunk = 256;
  options.methods = value_of(sweep_methods({"snapkv"}, {"25%"}, {"f32"}, ""));
  options.lengths = {1500};
  options.facts = 3;
  return options;
}

std::string temporary(std::string_view name) {
  return (std::filesystem::path(testing::TempDir()) / fmt::format("{}.{}", name, getpid())).string();
}

TEST(Sweep, TheBaselinesAreInEverySweep) {
  const auto methods = value_of(sweep_methods({"h2o"}, {"50%", "25%"}, {"f16", "q8"}, "chunk"));
  std::vector<std::string> names;
  for (const SweepMethod& m : methods) names.push_back(m.name() + " " + m.budget);
  EXPECT_EQ(names,
            (std::vector<std::string>{"full ", "streaming 50%", "streaming 25%", "random 50%", "random 25%", "h2o 50%",
                                      "h2o 25%", "full, q8 ", "streaming, q8 50%", "streaming, q8 25%",
                                      "random, q8 50%", "random, q8 25%", "h2o, q8 50%", "h2o, q8 25%"}));
  EXPECT_GE(value_of(sweep_methods({}, {"25%"}, {"f16"}, "")).size(), 10U) << "all policies";
  EXPECT_EQ(value_of(sweep_methods({"none"}, {"25%"}, {"q8", "q4"}, "")).size(), 2U) << "codecs alone";
  const auto only = value_of(sweep_methods({"h2o"}, {"50%", "25%"}, {"q8"}, "", true));
  EXPECT_EQ(only, (std::vector<SweepMethod>{{"q8", "h2o", "50%", ""}, {"q8", "h2o", "25%", ""}}));
  EXPECT_EQ(value_of(sweep_methods({"none"}, {"25%"}, {"q8"}, "", true)).size(), 1U) << "the codec that is named";
  expect_error(sweep_methods({"lru"}, {"25%"}, {"f16"}, ""), ErrorCode::kInvalidArgument, "no KV policy is named");
}

TEST(Sweep, NothingIsLostWhereNothingIsDropped) {
  const auto rows = value_of(run_sweep(small(), book(), {}, {}, {}));
  ASSERT_EQ(rows.size(), 4U);
  for (const SweepRow& row : rows) {
    EXPECT_EQ(row.answers.size(), 6U) << "known and late";
    EXPECT_GT(row.prefill_per_second, 0);
    EXPECT_GT(row.decode_per_second, 0);
    const bool full = row.method.policy.empty();
    if (full) {
      EXPECT_EQ(row.mean_kl, 0) << "the same engine";
      EXPECT_EQ(row.same_top, 1);
      EXPECT_EQ(row.mass_lost, 0);
    } else {
      EXPECT_GT(row.mean_kl, 0) << row.method.name();
      EXPECT_GT(row.mass_lost, 0.05) << row.method.name();
      EXPECT_LT(row.mass_lost, 0.95) << row.method.name();
      EXPECT_LT(row.kv_bytes_per_token, 0.35 * rows[0].kv_bytes_per_token);
    }
  }
}

TEST(Sweep, PlannersAreMeasuredAgainstDenseAttention) {
  SweepOptions options = small();
  options.methods.resize(1);
  options.engine.prefill = "trishape:sinks=64,window=64,tail=16";
  EXPECT_GT(value_of(run_sweep(options, book(), {}, {}, {}))[0].mean_kl, 0);
}

// The built-in model knows the answers: generated, they are those that are likeliest.
TEST(Sweep, AnswersAreGeneratedWhereAPlannerWantsIt) {
  SweepOptions options = small();
  options.engine = {};
  options.engine.threads = 2;
  options.lengths = {700};
  options.methods = {{"f16", "", "", ""}};
  const auto right = [&](const char* decode) {
    options.engine.decode = decode;
    const auto row = value_of(run_sweep(options, book(), {}, {}, {}))[0];
    return std::count_if(row.answers.begin(), row.answers.end(), [](const SweepAnswer& a) { return a.right; });
  };
  EXPECT_EQ(right("dense"), 6);
  EXPECT_EQ(right("resa:share=1,repair=0"), 6);
  EXPECT_LT(right("resa:share=0,least=1,repair=0"), 6) << "of one page";
}

TEST(Sweep, RowsThatAreThereAreNotRunAgain) {
  SweepOptions options = small();
  options.known = false;
  options.lengths = {800};
  const std::string path = temporary("sweep_rows");
  int ran = 0;
  auto keep = [&](const SweepRow& row) {
    ++ran;
    return append_sweep_row(path, row);
  };
  ASSERT_TRUE(run_sweep(options, book(), {}, keep, {}).has_value());
  EXPECT_EQ(ran, 4);
  std::ofstream(path, std::ios::app) << R"({"key": "cut o)";
  options.lengths = {800, 900};
  options.methods.pop_back();
  const auto rows = value_of(run_sweep(options, book(), value_of(read_sweep_rows(path)), keep, {}));
  EXPECT_EQ(ran, 7) << "three methods at the new length";
  EXPECT_EQ(rows.size(), 6U);
  EXPECT_EQ(value_of(read_sweep_rows(path)).size(), 7U);

  options.seed = 9;
  ASSERT_TRUE(run_sweep(options, book(), value_of(read_sweep_rows(path)), keep, {}).has_value());
  EXPECT_EQ(ran, 13) << "other texts are other rows";
  std::filesystem::remove(path);
  EXPECT_TRUE(value_of(read_sweep_rows(path)).empty());
}

TEST(Sweep, RowsAreInAPlainFile) {
  for (const std::string& path : {std::string("/dev/full"), std::string("/dev/null"), testing::TempDir()})
    expect_error(read_sweep_rows(path), ErrorCode::kInvalidArgument, "plain file");
}

// Cut short in its file, full attention is not what it was: who used the file gets another divergence or an error.
TEST(Sweep, FullAttentionIsKeptAndReadAgain) {
  SweepOptions options = small();
  const auto alone = value_of(run_sweep(options, book(), {}, {}, {}));
  options.full_folder = temporary("sweep_full") + "/deep";
  for (const char* time : {"first", "second"}) {
    const auto rows = value_of(run_sweep(options, book(), {}, {}, {}));
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].mean_kl, alone[i].mean_kl) << time;
      EXPECT_EQ(rows[i].mass_lost, alone[i].mass_lost) << time;
    }
  }
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(options.full_folder)) files.push_back(file.path());
  ASSERT_EQ(files.size(), 1U);
  std::filesystem::resize_file(files[0], std::filesystem::file_size(files[0]) - 1);
  expect_error(run_sweep(options, book(), {}, {}, {}), ErrorCode::kBadData, "is cut off; remove the file");
  std::ofstream(files[0]) << R"({"key": "another", "logits": [0, 0], "mass": [0, 0]})"
                          << "\n";
  expect_error(run_sweep(options, book(), {}, {}, {}), ErrorCode::kBadData, "another text or model");
  options.seed = 2;
  ASSERT_TRUE(run_sweep(options, book(), {}, {}, {}).has_value()) << "another text, another file";
  std::filesystem::remove_all(temporary("sweep_full"));
}

TEST(Sweep, SeveralMayWriteRowsAtOnce) {
  const std::string path = temporary("sweep_shared");
  SweepRow row;
  row.answers.resize(200);  // longer than one write of a stream
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer)
      writers.emplace_back([&] {
        for (int i = 0; i < 25; ++i) {
          EXPECT_TRUE(append_sweep_row(path, row));
          EXPECT_TRUE(read_sweep_rows(path)) << "nobody sees half a row, and cuts it off";
        }
      });
  }
  EXPECT_EQ(value_of(read_sweep_rows(path)).size(), 100U);
  std::filesystem::remove(path);
}

TEST(Sweep, RefusesWhatMakesNoSenseBeforeAnythingRuns) {
  SweepOptions options = small();
  options.methods.push_back({"f32", "snapkv", "7", ""});
  int ran = 0;
  auto count = [&](const SweepRow&) {
    ++ran;
    return Status();
  };
  expect_error(run_sweep(options, book(), {}, count, {}), ErrorCode::kInvalidArgument, "needs at least 33");
  EXPECT_EQ(ran, 0);
  options.methods.clear();
  expect_error(run_sweep(options, book(), {}, count, {}), ErrorCode::kInvalidArgument, "needs methods");
}

SweepRow row_of(std::string policy, int length, bool right) {
  SweepRow row;
  row.method = {"f16", std::move(policy), "25%", ""};
  row.length = length;
  row.answers = {{"number", 0.5, true, right}, {"number", 0.9, false, !right}};
  row.kv_bytes_per_token = 1000;
  row.mean_kl = right ? 0.25 : 0.75;
  row.decode_per_second = 100;
  return row;
}

TEST(Sweep, SummariesAreMeansOverTexts) {
  const auto all = summarize({row_of("h2o", 512, true), row_of("random", 512, true), row_of("h2o", 512, false)});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].known.asked, 2);
  EXPECT_EQ(all[0].known.right, 1);
  EXPECT_EQ(all[0].late_by_kind.at("number").right, 1);
  EXPECT_EQ(all[0].mean_kl, 0.5);
  const nlohmann::json json = sweep_json(all);
  EXPECT_EQ(json[0]["late"]["recall"], 0.5);
  EXPECT_EQ(json[1]["policy"], "random");
  EXPECT_NE(sweep_table(all).find("h2o"), std::string::npos);
}

TEST(Sweep, ThePageNamesEveryMethodAndLoadsNothing) {
  const std::string page = sweep_html({row_of("h2o<b>", 512, true), row_of("random", 1024, false)}, "a & b");
  EXPECT_NE(page.find("<h1>a &amp; b</h1>"), std::string::npos);
  EXPECT_NE(page.find("h2o&lt;b&gt;"), std::string::npos);
  EXPECT_EQ(page.find("h2o<b>"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  for (const char* part : {"random", "512 tokens", "1024 tokens", "prefers-color-scheme: dark", "class=\"cell\""})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace godwit
