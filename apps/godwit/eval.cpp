// godwit eval: how good a model, and what is done to its cache, is.
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/facts.h"
#include "eval/perplexity.h"
#include "eval/recall.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct Perplexity {
  ModelFlags model;
  std::string file;
  PerplexityOptions options;

  Status run(bool json) {
    GODWIT_ASSIGN(std::string text, read_input(file));
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    ProgressBar bar("perplexity");
    options.on_progress = [&](int64_t done, int64_t total) { bar.show_tokens(done, total); };
    GODWIT_ASSIGN(PerplexityResult result, measure_perplexity(engine, text, options, interrupt.token()));
    bar.clear();
    if (json)
      std::cout << nlohmann::json{{"tokens", result.tokens},
                                  {"mean_nll", result.mean_nll},
                                  {"perplexity", result.perplexity}}
                << "\n";
    else
      std::cout << fmt::format("perplexity {:.6f} (mean NLL {:.6f} over {} tokens)\n", result.perplexity,
                               result.mean_nll, result.tokens);
    return {};
  }
};

struct Recall {
  ModelFlags model;
  std::string file;
  std::vector<std::string> kinds = {"number", "hex", "lives", "keeps"};
  std::vector<int> lengths = {2048, 8192};
  RecallOptions options;

  Status run(bool json) {
    GODWIT_ASSIGN(std::string text, read_input(file));
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    nlohmann::json rows = nlohmann::json::array();
    for (int length : lengths) {
      RecallResult all;
      for (const std::string& kind : kinds) {
        options.length = length;
        options.kind = kind;
        ProgressBar bar(fmt::format("{} {}", kind, length));
        options.on_progress = [&](int done, int total) { bar.show(static_cast<double>(done) / total); };
        GODWIT_ASSIGN(RecallResult result, measure_recall(engine, text, options, interrupt.token()));
        bar.clear();
        row(rows, json, length, kind, result);
        all.asked += result.asked;
        all.right += result.right;
      }
      row(rows, json, length, "all", all);
    }
    if (json) std::cout << rows.dump(2) << "\n";
    return {};
  }

  static void row(nlohmann::json& rows, bool json, int length, const std::string& kind, const RecallResult& r) {
    if (!json && rows.empty())
      std::cout << fmt::format("{:>8}  {:<8} {:>7} {:>7} {:>7}\n", "length", "kind", "asked", "right", "recall");
    rows.push_back({{"length", length}, {"kind", kind}, {"asked", r.asked}, {"right", r.right}, {"recall", r.share()}});
    if (!json)
      std::cout << fmt::format("{:>8}  {:<8} {:>7} {:>7} {:>7.3f}", length, kind, r.asked, r.right, r.share())
                << std::endl;
  }
};

}  // namespace

void add_eval(Program& program) {
  CLI::App* verb = program.app.add_subcommand("eval", "Measure a model: perplexity, recall of planted facts");
  verb->require_subcommand(1);
  auto perplexity = std::make_shared<Perplexity>();
  CLI::App* ppl = verb->add_subcommand("perplexity", "Perplexity of a text file");
  ppl->add_flag("--json", program.json, "Print results as JSON on stdout");
  ppl->add_option("-f,--file", perplexity->file, "The text; '-' is stdin")->required();
  ppl->add_option("--window", perplexity->options.window, "Tokens predicted together")->capture_default_str();
  ppl->add_option("--windows", perplexity->options.max_windows, "Only this many windows; 0: all")
      ->capture_default_str();
  perplexity->model.add_to(*ppl);
  ppl->callback(
      [&program, perplexity] { program.run = [&program, perplexity] { return perplexity->run(program.json); }; });

  auto recall = std::make_shared<Recall>();
  CLI::App* rec = verb->add_subcommand("recall", "Plant facts in a text and ask for them");
  rec->add_flag("--json", program.json, "Print results as JSON on stdout");
  rec->add_option("-f,--file", recall->file, "The text to plant facts in")->required();
  rec->add_option("--length", recall->lengths, "Context lengths in tokens")->delimiter(',')->capture_default_str();
  rec->add_option("--kind", recall->kinds, "number, hex, lives, keeps")->delimiter(',')->capture_default_str();
  rec->add_option("--samples", recall->options.samples, "Texts per length and kind")->capture_default_str();
  rec->add_option("--facts", recall->options.facts, "Facts in each text; 0: varied")->capture_default_str();
  rec->add_option("--seed", recall->options.seed, "Same seed, same texts")->capture_default_str();
  recall->model.add_to(*rec);
  rec->callback([&program, recall] { program.run = [&program, recall] { return recall->run(program.json); }; });
}

}  // namespace godwit::cli
