// godwit tune: side files that KV methods want, fitted to a model.
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/head_scores.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct Tune {
  ModelFlags model;
  std::string text_file, out;
  int sinks = 4, recent = 256;
  RepeatOptions repeats;
  FactScoreOptions facts;

  // REQUIRES: no KV policy, which add_model_to() leaves no way to give.
  Status run(bool json, bool by_facts) {
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    GODWIT_ASSIGN(auto to, begin_output(out));
    HeadScores scores;
    if (by_facts) {
      GODWIT_ASSIGN(const std::string text, read_input(text_file));
      ProgressBar bar("tune");
      facts.on_progress = [&](int done, int total) { bar.show(static_cast<double>(done) / total); };
      GODWIT_ASSIGN(scores, scores_by_facts(engine, text, facts, interrupt.token()));
    } else {
      GODWIT_ASSIGN(scores, scores_by_repeats(engine, repeats, interrupt.token()));
    }
    const nlohmann::ordered_json file = {{"format", "godwit.duo-gates.1"},
                                         {"model", engine.info().model},
                                         {"by", by_facts ? "facts" : "repeats"},
                                         {"sinks", sinks},
                                         {"recent", recent},
                                         {"gates", gates_from(scores)},
                                         {"scores", scores}};
    GODWIT_TRY(finish_output(to, file.dump() + "\n"));
    if (json) {
      std::cout << json_text(file) << "\n";
      return {};
    }
    std::cout << "gates of each layer's KV heads\n";
    size_t number = 0;
    for (const auto& layer : gates_from(scores))
      std::cout << fmt::format("{:>4}  {:.2f}\n", number++, fmt::join(layer, "  "));
    std::cout << fmt::format("{} is for --kv-policy duo:gates={} or razor:gates={}\n", out, out, out);
    return {};
  }
};

}  // namespace

void add_tune(Program& program) {
  CLI::App* verb = program.app.add_subcommand("tune", "Fit what KV methods need to a model, into a side file");
  verb->require_subcommand(1);
  auto add = [&](const char* name, const char* description, bool by_facts) {
    auto tune = std::make_shared<Tune>();
    CLI::App* one = verb->add_subcommand(name, description);
    one->add_flag("--json", program.json, "Print results as JSON on stdout");
    one->add_option("-o,--output", tune->out, "The file to write")->required()->check(kNotEmpty);
    if (by_facts) {
      one->add_option("-f,--file", tune->text_file, "A text to plant facts in")->required();
      one->add_option("--length", tune->facts.length, "Tokens of a text")->capture_default_str();
      one->add_option("--facts", tune->facts.facts, "Facts in each text")->capture_default_str();
      one->add_option("--samples", tune->facts.samples, "Texts")->capture_default_str();
      one->add_option("--seed", tune->facts.seed, "Same seed, same texts")->capture_default_str();
    } else {
      one->add_option("--tokens", tune->repeats.tokens, "Random tokens that are repeated")->capture_default_str();
      one->add_option("--copies", tune->repeats.copies, "How often they come")->capture_default_str();
      one->add_option("--seed", tune->repeats.seed, "Same seed, same tokens")->capture_default_str();
    }
    one->add_option("--sinks", tune->sinks, "First tokens that duo's streaming heads keep")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    one->add_option("--recent", tune->recent, "Newest tokens that they keep")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    tune->model.add_model_to(*one->add_option_group("model"));
    one->callback([&program, tune, by_facts] {
      program.run = [&program, tune, by_facts] { return tune->run(program.json, by_facts); };
    });
  };
  add("razor", "Gates of heads from what they attend to in repeated random tokens; needs no text", false);
  add("duo", "Gates of heads from what they attend to when they answer questions about a text", true);
  add_tune_bits(program, *verb);
  add_tune_codecs(program, *verb);
}

}  // namespace godwit::cli
