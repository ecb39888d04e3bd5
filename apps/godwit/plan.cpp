// godwit plan: how long a prompt and a token will take on hardware that one may not have, before anything runs.
#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/result.h"
#include "engine/builtin_model.h"
#include "interrupt.h"
#include "kv/codec.h"
#include "options.h"
#include "output.h"
#include "plan/calibrate.h"
#include "plan/report.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

using namespace godwit::plan;

// "90%" or "0.9" to 0.9; less than the whole.
Result<double> parse_share(const std::string& text) {
  char* end = nullptr;
  double share = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && std::string_view(end) == "%")
    share /= 100;
  else if (end == text.c_str() || *end != '\0')
    share = -1;
  if (!(share >= 0 && share < 1))
    return errorf(ErrorCode::kInvalidArgument, "--cached {} is no share; give 0% to 99.9% of the prompt", text);
  return share;
}

struct Plan {
  ModelFlags model;
  std::string hardware = "h100", link = "rdma-400", mode = "auto", cached, plot_file, hardware_file;
  std::vector<int64_t> prompts = {131072}, depths = {0};
  std::vector<int> tp = {1}, cp = {1, 2, 4, 8};
  double weight_bits = 16, ffn_bits = 0, ttft = 0, ttit = 0;
  std::vector<double> cached_shares;
  bool no_overlap = false, ops = false, codec_given = false;
  PlanRequest request;

  bool this_machine() const { return hardware == "this"; }

  Status run(bool json) {
    InterruptScope interrupt;
    GODWIT_ASSIGN(auto plot, begin_output(plot_file));
    GODWIT_ASSIGN(auto device, begin_output(hardware_file));
    GODWIT_TRY(read_model());
    GODWIT_TRY(read_hardware(interrupt.token()));
    GODWIT_TRY(finish_output(device, device_text(request.device)));
    PlanReport report{request.model, request.device, request.link, model.options.kv_codec, {}, {}};
    if (ttft != 0) report.targets.ttft_s = ttft;
    if (ttit != 0) report.targets.ttit_s = ttit;
    GODWIT_ASSIGN(report.rows, plan_rows());
    GODWIT_TRY(finish_output(plot, plan_html(report)));
    if (json) {
      std::cout << plan_json(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
      return {};
    }
    std::cout << plan_table(report);
    if (ops)
      for (const PlanRow& row : report.rows) std::cout << ops_table(row);
    return {};
  }

  Status read_model() {
    if (!(weight_bits >= 1 && weight_bits <= 32) || !(ffn_bits == 0 || (ffn_bits >= 1 && ffn_bits <= 32)))
      return errorf(ErrorCode::kInvalidArgument, "weights have 1 to 32 bits, not {} and {}", weight_bits, ffn_bits);
    for (double target : {ttft, ttit})
      if (!(target >= 0)) return errorf(ErrorCode::kInvalidArgument, "targets are seconds above 0, not {}", target);
    if (model.options.threads != 0 && !this_machine())
      return errorf(ErrorCode::kInvalidArgument, "--threads are those of --hardware this, not of {}", hardware);
    const std::string& name = model.options.model;
    const std::vector<std::string> shapes = shape_names();
    if (std::find(shapes.begin(), shapes.end(), name) != shapes.end()) {
      GODWIT_ASSIGN(const ModelShape shape, find_shape(name));
      request.model = plan_model(shape, weight_bits, ffn_bits > 0 ? ffn_bits : weight_bits);
    } else {
      GODWIT_ASSIGN(const ModelSource source, open_source());
      GODWIT_ASSIGN(request.model, plan_model(source));
    }
    if (!codec_given && !this_machine()) model.options.kv_codec = "bf16";
    GODWIT_ASSIGN(request.kv, make_kv_format(model.options.kv_codec, request.model.config.head_dim));
    return {};
  }

  Result<ModelSource> open_source() const {
    const std::string& name = model.options.model;
    if (name.empty()) return open_builtin_model();
    Result<ModelSource> source = ModelSource::open(name);
    if (!source && source.error().code == ErrorCode::kNotFound)
      return errorf(ErrorCode::kNotFound, "{}; shapes without a file are {}", source.error().message,
                    fmt::join(shape_names(), ", "));
    return source;
  }

  Status read_hardware(const std::stop_token& stop) {
    if (this_machine()) {
      GODWIT_ASSIGN(request.device, measure_this(stop));
    } else {
      GODWIT_ASSIGN(request.device, find_device(hardware));
    }
    GODWIT_ASSIGN(request.link, find_link(link));
    return {};
  }

  // A shape has no weights to run: the built-in model stands for it.
  Result<Device> measure_this(const std::stop_token& stop) {
    EngineOptions options = model.options;
    if (request.chunk_tokens > 0)
      options.prefill_chunk = static_cast<int>(std::min<int64_t>(request.chunk_tokens, 65536));
    const std::vector<std::string> shapes = shape_names();
    if (std::find(shapes.begin(), shapes.end(), options.model) != shapes.end()) options.model.clear();
    GODWIT_ASSIGN(const ModelSource source,
                  options.model.empty() ? open_builtin_model() : ModelSource::open(options.model));
    GODWIT_ASSIGN(const PlanModel profiled, plan_model(source));
    GODWIT_ASSIGN(const KvFormat kv, make_kv_format(options.kv_codec, profiled.config.head_dim));
    GODWIT_ASSIGN(const CostModel cost, CostModel::make(source, kv));
    ProgressBar bar("measure");
    GODWIT_ASSIGN(const std::vector<Profile> profiles,
                  profile_machine(
                      options, source, [&](double share) { bar.show(share); }, stop));
    bar.clear();
    const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    return device_from_profiles(profiles, cost, profiled, options.prefill_chunk,
                                static_cast<double>(kv.page_bytes()) / kv.page_tokens, memory);
  }

  Result<std::vector<PlanRow>> plan_rows() {
    request.overlapped = !no_overlap;
    for (double share : cached_shares) request.cached_shares.push_back(share / 100);
    double share = 0;
    if (!cached.empty()) {
      GODWIT_ASSIGN(share, parse_share(cached));
    }
    std::vector<PlanRow> rows;
    for (int64_t depth : depths)
      for (int64_t prompt : prompts)
        for (int t : tp)
          for (int c : cp)
            for (const auto& way : modes(c)) {
              const auto found = static_cast<int64_t>(share * static_cast<double>(prompt));
              request.new_tokens = prompt - found;
              request.cached_tokens = depth + found;
              request.tp = t, request.cp = c, request.mode = way;
              GODWIT_ASSIGN(PlanResult result, make_plan(request));
              rows.push_back({request.new_tokens, request.cached_tokens, std::move(result)});
            }
    return rows;
  }

  std::vector<std::optional<dist::RingMode>> modes(int ranks) const {
    using dist::RingMode;
    if (mode == "auto" || ranks == 1) return {std::nullopt};
    if (mode == "each") return {RingMode::kPassKv, RingMode::kPassQ, RingMode::kAllGather};
    return {mode == "pass-kv" ? RingMode::kPassKv : mode == "pass-q" ? RingMode::kPassQ : RingMode::kAllGather};
  }
};

}  // namespace

void add_plan(Program& program) {
  auto plan = std::make_shared<Plan>();
  CLI::App* verb = add_verb(program, "plan", "Predict times and memory on one device or a cluster");
  EngineOptions& options = plan->model.options;
  auto list = [](CLI::App* to, const char* name, auto& values, const char* help) {
    return to->add_option(name, values, help)->delimiter(',')->allow_extra_args(false)->capture_default_str();
  };
  verb->add_option("-m,--model", options.model,
                   "GGUF file, Hugging Face folder, or a public shape's name (default: the built-in model)")
      ->check(kNotEmpty);
  list(verb, "-p,--prompt", plan->prompts, "Prompt sizes in tokens");
  CLI::Option* depth = list(verb, "-d,--depth", plan->depths, "Tokens that are in the cache before");
  verb->add_option("--cached", plan->cached, "Share of each prompt that is in the cache, e.g. 90%")
      ->check(kNotEmpty)
      ->excludes(depth);
  verb->add_option("--kv-codec", options.kv_codec,
                   "How K and V are stored and sent (default: bf16; f16 on this machine)")
      ->each([plan](const std::string&) { plan->codec_given = true; });
  verb->add_option("--ttft", plan->ttft, "Target: seconds to the first token");
  verb->add_option("--ttit", plan->ttit, "Target: seconds per further token");
  verb->add_flag("--ops", plan->ops, "Show where the time goes, by operator");
  verb->add_option("--plot", plan->plot_file, "Write a page with plots")->check(kNotEmpty);

  auto* where = verb->add_option_group("hardware");
  where
      ->add_option(
          "--hardware", plan->hardware,
          fmt::format("{}, a file like them, or 'this': this machine, measured now", fmt::join(device_names(), ", ")))
      ->check(kNotEmpty)
      ->capture_default_str();
  where->add_option("--link", plan->link, fmt::format("{}, or a file like them", fmt::join(link_names(), ", ")))
      ->check(kNotEmpty)
      ->capture_default_str();
  where->add_option("--save-hardware", plan->hardware_file, "Write the device's description to a file")
      ->check(kNotEmpty);
  where->add_option("-t,--threads", options.threads, "With 'this': threads (default: all cores)");
  list(where, "--tp", plan->tp, "Degrees of tensor parallelism");
  list(where, "--cp", plan->cp, "Degrees of context parallelism");

  auto* how = verb->add_option_group("how");
  how->add_option("--mode", plan->mode, "What goes around the ring")
      ->check(CLI::IsMember({"auto", "pass-kv", "pass-q", "all-gather", "each"}))
      ->capture_default_str();
  how->add_option("-b,--chunk", plan->request.chunk_tokens,
                  "Prompt tokens that a rank computes at once (default: all; on this machine the engine's)");
  how->add_option("--page", plan->request.page_tokens, "Shards are whole pages of so many tokens")
      ->capture_default_str();
  how->add_option("--batch", plan->request.batch, "Sequences that are generated together")->capture_default_str();
  how->add_option("--weight-bits", plan->weight_bits, "Of a shape's weights")->capture_default_str();
  how->add_option("--ffn-bits", plan->ffn_bits, "Of a shape's feed-forward weights (default: as the others)");
  how->add_flag("--no-overlap", plan->no_overlap, "Messages do not travel while ranks compute");
  how->add_option("--slowest", plan->request.slowest, "The first rank takes so many times as long")
      ->capture_default_str();
  how->add_option("--cached-shares", plan->cached_shares, "Percent of the cache on each rank (default: even)")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->callback([&program, plan] { program.run = [&program, plan] { return plan->run(program.json); }; });
}

}  // namespace godwit::cli
