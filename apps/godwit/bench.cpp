// godwit bench: how fast this machine reads prompts and generates, and how near that is to what it could do.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/builtin_model.h"
#include "engine/memory_plan.h"
#include "eval/roofline.h"
#include "interrupt.h"
#include "kv/codec.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

using ordered_json = nlohmann::ordered_json;

Status check_list(const char* flag, const std::vector<int>& values, int least, const char* remedy) {
  for (int value : values)
    if (value < least) return errorf(ErrorCode::kInvalidArgument, "{} {} makes no sense; {}", flag, value, remedy);
  return {};
}

struct Bench {
  ModelFlags model;
  std::vector<int> prompts = {512}, generations = {128}, depths = {0}, threads = {0};
  int repetitions = 5;
  bool roofline = false;

  std::vector<SpeedTest> tests() const {
    std::vector<SpeedTest> list;
    // Shallow ones first, so that deeper ones go on from what they computed.
    for (int depth : std::set<int>(depths.begin(), depths.end())) {
      for (int prompt : prompts)
        if (prompt > 0) list.push_back({.prompt = prompt, .depth = depth});
      for (int generated : generations)
        if (generated > 0) list.push_back({.generated = generated, .depth = depth});
    }
    return list;
  }

  Status check() const {
    GODWIT_TRY(check_list("-p", prompts, 0, "give numbers of tokens, or 0 for no prompt test"));
    GODWIT_TRY(check_list("-n", generations, 0, "give numbers of tokens, or 0 for no generation test"));
    GODWIT_TRY(check_list("-d", depths, 0, "give numbers of tokens"));
    GODWIT_TRY(check_list("-t", threads, 0, "give 1 to 1024, or 0 for all cores"));
    if (repetitions < 1 || repetitions > 10000)
      return errorf(ErrorCode::kInvalidArgument, "-r {} makes no sense; give 1 to 10000 repetitions", repetitions);
    if (tests().empty())
      return errorf(ErrorCode::kInvalidArgument, "there is nothing to measure: -p and -n are 0; give one of them");
    return {};
  }

  // The longest context that a test needs, or why the model has none of that length.
  Result<int64_t> context(const ModelSource& source) const {
    int64_t longest = 0;
    for (const SpeedTest& test : tests()) {
      if (test.context_tokens() > source.config().context_length)
        return errorf(ErrorCode::kInvalidArgument,
                      "{} needs a context of {} tokens, but the model was made for {}; lower -d, -p or -n", test.name(),
                      test.context_tokens(), source.config().context_length);
      longest = std::max(longest, test.context_tokens());
    }
    return longest;
  }

  Status run(bool json) {
    GODWIT_TRY(check());
    EngineOptions& options = model.options;
    GODWIT_ASSIGN(ModelSource source, options.model.empty() ? open_builtin_model() : ModelSource::open(options.model));
    GODWIT_ASSIGN(int64_t longest, context(source));
    const ModelConfig& config = source.config();
    GODWIT_ASSIGN(auto formats,
                  make_kv_formats(options.kv_codec, config.head_dim, static_cast<int>(config.layers.size())));
    GODWIT_ASSIGN(CostModel cost, CostModel::make(source, std::move(formats)));
    options.context_tokens = static_cast<int>(longest);
    options.profile = roofline;
    InterruptScope interrupt;
    ordered_json rows = ordered_json::array();
    for (int count : threads) {
      options.threads = count;
      GODWIT_ASSIGN(Engine engine, model.open());
      MachineLimits limits;
      if (roofline) {
        GODWIT_ASSIGN(limits, measure_limits(engine.info().threads, options.simd));
      }
      SpeedMeter meter(engine);
      for (const SpeedTest& test : tests()) {
        ProgressBar bar(test.name());
        GODWIT_ASSIGN(SpeedResult result,
                      meter.measure(
                          test, repetitions, [&](double share) { bar.show(share); }, interrupt.token()));
        bar.clear();
        ordered_json row = describe(test, result, cost, engine.info());
        if (roofline)
          row["roofline"] = roofline_json(godwit::roofline(test, result, cost, options.prefill_chunk, limits), limits);
        if (!json) print_row(row, rows.empty());
        rows.push_back(std::move(row));
      }
    }
    if (json) {
      std::cout << rows.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
      return {};
    }
    print_backends(rows);
    if (roofline) print_roofline(rows);
    return {};
  }

  ordered_json describe(const SpeedTest& test, const SpeedResult& result, const CostModel& cost,
                        const EngineInfo& info) const {
    return {{"test", test.name()},
            {"tokens_per_second", result.mean},
            {"deviation", result.deviation},
            {"samples", result.samples},
            {"prompt_tokens", test.prompt},
            {"generated_tokens", test.generated},
            {"depth", test.depth},
            {"tokens_per_second_to_depth", result.to_depth},
            {"repetitions", repetitions},
            {"model", info.model},
            {"family", info.family},
            {"type", dtype_name(cost.main_type())},
            {"parameters", cost.parameters()},
            {"size_bytes", cost.bytes()},
            {"threads", info.threads},
            {"chunk", model.options.prefill_chunk},
            {"kv_codec", info.kv_codec},
            {"kv_policy", info.kv_policy},
            {"kv_budget", model.options.kv_budget},
            {"simd", model.options.simd.empty() ? cpu_simd_targets().front() : model.options.simd},
            {"prefill", model.options.prefill},
            {"decode", model.options.decode},
            {"backend", info.backend},
            {"version", GODWIT_VERSION}};
  }

  static void print_row(const ordered_json& row, bool first) {
    if (first)
      std::cout << "| model | type | size | parameters | threads | SIMD | chunk | KV | test | tokens/s |\n"
                   "|---|---|---:|---:|---:|---|---:|---|---|---:|\n";
    const std::filesystem::path model = row["model"].get<std::string>();
    std::cout << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} ± {:.2f} |",
                             (model.has_filename() ? model : model.parent_path()).filename().string(),
                             row["type"].get<std::string>(), bytes_text(row["size_bytes"]),
                             count_text(row["parameters"]), row["threads"].get<int>(), row["simd"].get<std::string>(),
                             row["chunk"].get<int>(), row["kv_codec"].get<std::string>(),
                             row["test"].get<std::string>(), row["tokens_per_second"].get<double>(),
                             row["deviation"].get<double>())
              << std::endl;
  }

  // Where the threads were, which the table has no room for.
  static void print_backends(const ordered_json& rows) {
    std::string last;
    for (const ordered_json& row : rows) {
      if (row["backend"] != last) std::cout << "\n" << row["backend"].get<std::string>() << "\n";
      last = row["backend"];
    }
  }

  static ordered_json roofline_json(const std::vector<RooflineRow>& rows, const MachineLimits& limits) {
    ordered_json operations = ordered_json::array();
    for (const RooflineRow& row : rows)
      operations.push_back({{"operation", row.operation},
                            {"time_share", row.time_share},
                            {"flops_per_second", row.flops_per_second},
                            {"bytes_per_second", row.bytes_per_second},
                            {"fma_share", row.fma_share},
                            {"read_share", row.read_share}});
    return {{"fma_flops_per_second", limits.fma_flops_per_second},
            {"fma_unit", limits.fma_unit},
            {"streamed_flops_per_second", limits.streamed_flops_per_second},
            {"int8_ops_per_second", limits.int8_ops_per_second},
            {"read_bytes_per_second", limits.read_bytes_per_second},
            {"operations", std::move(operations)}};
  }

  static void print_roofline(const ordered_json& rows) {
    int threads = 0;
    for (const ordered_json& row : rows) {
      const ordered_json& roofline = row["roofline"];
      if (row["threads"] != threads) {
        threads = row["threads"];
        const double streamed = roofline["streamed_flops_per_second"], int8 = roofline["int8_ops_per_second"];
        std::cout << fmt::format(
            "\nLimits with {} thread{}: {:.1f} GFLOP/s ({}{}{}), {:.1f} GB/s (reads of memory).\n\n| test | operation "
            "| "
            "time | GFLOP/s | of limit | GB/s | of limit |\n"
            "|---|---|---:|---:|---:|---:|---:|\n",
            threads, threads == 1 ? "" : "s", roofline["fma_flops_per_second"].get<double>() / 1e9,
            roofline["fma_unit"].get<std::string>(),
            streamed > 0 ? fmt::format("; {:.1f} from the second cache", streamed / 1e9) : "",
            int8 > 0 ? fmt::format("; {:.1f} in 8 bits, as quantized weights are multiplied", int8 / 1e9) : "",
            roofline["read_bytes_per_second"].get<double>() / 1e9);
      }
      for (const ordered_json& part : roofline["operations"]) {
        const bool counted = part["flops_per_second"] > 0;
        auto number = [&](const char* key, double unit, int digits) {
          return counted ? fmt::format("{:.{}f}", part[key].get<double>() / unit, digits) : std::string();
        };
        std::cout << fmt::format("| {} | {} | {:.1f}% | {} | {} | {} | {} |\n", row["test"].get<std::string>(),
                                 part["operation"].get<std::string>(), part["time_share"].get<double>() * 100,
                                 number("flops_per_second", 1e9, 1), number("fma_share", 1, 2),
                                 number("bytes_per_second", 1e9, 2), number("read_share", 1, 2));
      }
    }
    std::cout
        << "\nCounted: matrix products, 2 FLOP per weight and row (one row of logits per step), every weight read "
           "once per step;\nattention, 4 FLOP per head dimension and visible pair of query head and key, visible "
           "K and V read once per step.\nNot counted: norms, RoPE, softmax, activations, sampling. Prompts are "
           "bound by the first limit, generation by the second;\ncaches may exceed the second.\n";
  }
};

}  // namespace

void add_bench(Program& program) {
  auto state = std::make_shared<Bench>();
  CLI::App* verb =
      add_verb(program, "bench", "Measure how fast a model reads prompts and generates, or a server under load");
  EngineOptions& options = state->model.options;
  verb->add_option("-m,--model", options.model, "GGUF file or Hugging Face folder (default: the built-in model)")
      ->check(kNotEmpty);
  auto list = [&](const char* name, std::vector<int>& values, const char* help) {
    verb->add_option(name, values, help)->delimiter(',')->allow_extra_args(false)->capture_default_str();
  };
  list("-p,--prompt", state->prompts, "Prompt sizes in tokens, e.g. 512,4096; 0: no prompt test");
  list("-n,--generate", state->generations, "Tokens to generate, e.g. 64,128; 0: no generation test");
  list("-d,--depth", state->depths, "Tokens that are in the cache before, e.g. 0,4096");
  list("-t,--threads", state->threads, "Numbers of threads; 0: all cores");
  verb->add_option("-r,--repetitions", state->repetitions, "Runs of each test, after a step to warm up")
      ->capture_default_str();
  verb->add_option("-b,--chunk", options.prefill_chunk, "Prompt tokens computed at once")->capture_default_str();
  add_kv_options(*verb, options, state->model.kv_memory);
  verb->add_option("--simd", options.simd, "SIMD target, or 'reference' (default: the machine's best)");
  add_map_weights(*verb, options);
  verb->add_flag("--roofline", state->roofline,
                 "Measure the machine's limits, too, and print the share of them that each operation reaches");
  add_bench_ring(program, *verb);
  add_bench_serve(program, *verb);
  verb->callback([&program, state, verb] {
    if (verb->get_subcommands().empty()) program.run = [&program, state] { return state->run(program.json); };
  });
}

}  // namespace godwit::cli
