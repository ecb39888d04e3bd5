// godwit tune bits: bits of K and V for each layer.
#include "eval/tune_bits.h"

#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

nlohmann::ordered_json bits_json(const std::vector<LayerBits>& layers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LayerBits& layer : layers) list.push_back({layer.k, layer.v});
  return list;
}

struct TuneBits {
  ModelFlags model;
  std::string text_file, out;
  TuneBitsOptions options;

  // REQUIRES: no KV options, which add_model_to() leaves no way to give.
  Status run(bool json) {
    GODWIT_ASSIGN(const EngineOptions engine, model.read());
    std::string text;
    if (!text_file.empty()) {
      GODWIT_ASSIGN(text, read_input(text_file));
      if (text.empty()) return errorf(ErrorCode::kInvalidArgument, "{}: the text is empty", text_file);
    }
    InterruptScope interrupt;
    GODWIT_ASSIGN(auto to, begin_output(out));
    ProgressBar bar("tune");
    options.on_progress = [&](double share) { bar.show(share); };
    GODWIT_ASSIGN(const TunedBits tuned, tune_bits(engine, text, options, interrupt.token()));
    bar.clear();
    nlohmann::ordered_json file = {{"format", "godwit.kv-bits.1"},
                                   {"model", engine.model},
                                   {"by", text.empty() ? "repeats" : "text"},
                                   {"bits", bits_json(tuned.best.layers)},
                                   {"bits_per_number", tuned.best.bits},
                                   {"mean_kl", tuned.best.mean_kl},
                                   {"choices", bits_json(tuned.choices)},
                                   {"costs", tuned.costs}};
    for (const MeasuredBits& same : tuned.uniform)
      file["uniform"].push_back(
          {{"bits", {same.layers[0].k, same.layers[0].v}}, {"bits_per_number", same.bits}, {"mean_kl", same.mean_kl}});
    GODWIT_TRY(finish_output(to, file.dump() + "\n"));
    if (json) {
      std::cout << json_text(file) << "\n";
      return {};
    }
    const auto print = [](const std::string& bits, const MeasuredBits& measured) {
      std::cout << fmt::format("{:<40}  {:>5.2f}  {:.5f}\n", bits, measured.bits, measured.mean_kl);
    };
    std::cout << fmt::format("{:<40}  {:>5}  KL\n", "bits of K and V, layer by layer", "mean");
    print(layer_bits_text(tuned.best.layers), tuned.best);
    for (const MeasuredBits& same : tuned.uniform)
      print(fmt::format("{}{} everywhere", same.layers[0].k, same.layers[0].v), same);
    std::cout << fmt::format("{} is for --kv-codec kvtuner:file={}\n", out, out);
    return {};
  }
};

}  // namespace

void add_tune_bits(Program& program, CLI::App& verb) {
  auto tune = std::make_shared<TuneBits>();
  CLI::App* one = verb.add_subcommand("bits", "Bits of K and V for each layer, from what fewer do to predictions");
  one->add_flag("--json", program.json, "Print results as JSON on stdout");
  one->add_option("-o,--output", tune->out, "The file to write")->required()->check(kNotEmpty);
  one->add_option("-f,--file", tune->text_file, "A text to predict; without, random tokens that are repeated")
      ->check(kNotEmpty);
  one->add_option("--bits", tune->options.bits, "Bits a number may have on average, scales included")
      ->capture_default_str();
  one->add_option("--length", tune->options.length, "Tokens of a text")->capture_default_str();
  one->add_option("--tail", tune->options.tail, "The last of them, which are predicted")->capture_default_str();
  one->add_option("--windows", tune->options.windows, "Texts")->capture_default_str();
  one->add_option("--seed", tune->options.seed, "Same seed, same tokens")->capture_default_str();
  tune->model.add_model_to(*one->add_option_group("model"));
  one->callback([&program, tune] { program.run = [&program, tune] { return tune->run(program.json); }; });
}

}  // namespace godwit::cli
