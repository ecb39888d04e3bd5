// godwit eval: how good a model, and what is done to its cache, is.
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/divergence.h"
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

struct Divergence {
  ModelFlags model;
  std::string file;
  DivergenceOptions options;

  Status run(bool json) {
    GODWIT_ASSIGN(std::string text, read_input(file));
    GODWIT_ASSIGN(Engine engine, model.open());
    ModelFlags exact = model;  // every entry, as it was computed
    exact.options.kv_policy = exact.options.kv_budget = exact.options.kv_trigger = "";
    exact.options.kv_codec = "f32";
    exact.options.prefill = exact.options.decode = "dense";
    GODWIT_ASSIGN(Engine full, exact.open());
    InterruptScope interrupt;
    ProgressBar bar("divergence");
    options.on_progress = [&](int done, int total) { bar.show(static_cast<double>(done) / total); };
    GODWIT_ASSIGN(DivergenceResult r, measure_divergence(full, engine, text, options, interrupt.token()));
    bar.clear();
    if (json)
      std::cout << nlohmann::json{{"tokens", r.tokens},
                                  {"mean_kl", r.mean_kl},
                                  {"max_kl", r.max_kl},
                                  {"same_top", r.same_top},
                                  {"kv_bytes_per_token", r.kv_bytes_per_token}}
                << "\n";
    else
      std::cout << fmt::format(
          "KL {:.6f} nats (at most {:.4f}, same likeliest token {:.1f}%) over {} tokens; {:.0f} KV bytes per token\n",
          r.mean_kl, r.max_kl, r.same_top * 100, r.tokens, r.kv_bytes_per_token);
    return {};
  }
};

struct Recall {
  ModelFlags model;
  std::string file;
  std::vector<std::string> kinds = {"number", "hex", "lives", "keeps"};
  std::vector<int> lengths = {2048, 8192};
  std::string question = "turns";
  RecallOptions options;

  Status run(bool json) {
    GODWIT_ASSIGN(std::string text, read_input(file));
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    nlohmann::json rows = nlohmann::json::array();
    options.question = question == "known"  ? RecallQuestion::kKnown
                       : question == "late" ? RecallQuestion::kLate
                                            : RecallQuestion::kTurns;
    for (int length : lengths) {
      RecallResult all;
      for (const std::string& kind : kinds) {
        options.length = length;
        options.kinds = {kind};
        ProgressBar bar(fmt::format("{} {}", kind, length));
        options.on_progress = [&](int done, int total) { bar.show(static_cast<double>(done) / total); };
        GODWIT_ASSIGN(RecallResult result, measure_recall(engine, text, options, interrupt.token()));
        bar.clear();
        row(rows, json, length, kind, result);
        all.asked += result.asked;
        all.right += result.right;
        all.kv_bytes_per_token += result.kv_bytes_per_token / static_cast<double>(kinds.size());
      }
      row(rows, json, length, "all", all);
    }
    if (json) std::cout << rows.dump(2) << "\n";
    return {};
  }

  void row(nlohmann::json& rows, bool json, int length, const std::string& kind, const RecallResult& r) const {
    if (!json && rows.empty())
      std::cout << fmt::format("{:>8}  {:<8} {:>7} {:>7} {:>7} {:>12}\n", "length", "kind", "asked", "right", "recall",
                               "KV-bytes/tok");
    rows.push_back({{"length", length},
                    {"kind", kind},
                    {"question", question},
                    {"asked", r.asked},
                    {"right", r.right},
                    {"recall", r.share()},
                    {"kv_bytes_per_token", r.kv_bytes_per_token}});
    if (!json)
      std::cout << fmt::format("{:>8}  {:<8} {:>7} {:>7} {:>7.3f} {:>12.0f}", length, kind, r.asked, r.right, r.share(),
                               r.kv_bytes_per_token)
                << std::endl;
  }
};

}  // namespace

void add_eval(Program& program) {
  CLI::App* verb = program.app.add_subcommand(
      "eval",
      "Measure a model and its KV methods: perplexity, recall of planted facts, divergence from full attention");
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

  auto divergence = std::make_shared<Divergence>();
  CLI::App* kl = verb->add_subcommand("kl", "KL divergence from full attention with an f32 cache on a text file");
  kl->add_flag("--json", program.json, "Print results as JSON on stdout");
  kl->add_option("-f,--file", divergence->file, "The text; '-' is stdin")->required();
  kl->add_option("--length", divergence->options.length, "Tokens of a window")->capture_default_str();
  kl->add_option("--tail", divergence->options.tail, "The last of them are predicted, after the rest as a prompt")
      ->capture_default_str();
  kl->add_option("--windows", divergence->options.max_windows, "Only this many windows; 0: all")->capture_default_str();
  divergence->model.add_to(*kl);
  kl->callback(
      [&program, divergence] { program.run = [&program, divergence] { return divergence->run(program.json); }; });

  auto recall = std::make_shared<Recall>();
  CLI::App* rec = verb->add_subcommand("recall", "Plant facts in a text and ask for them");
  rec->add_flag("--json", program.json, "Print results as JSON on stdout");
  rec->add_option("-f,--file", recall->file, "The text to plant facts in")->required();
  rec->add_option("--length", recall->lengths, "Context lengths in tokens")->delimiter(',')->capture_default_str();
  rec->add_option("--kind", recall->kinds, "number, hex, lives, keeps, multi, chain, sum, shots")
      ->delimiter(',')
      ->capture_default_str();
  rec->add_option("--samples", recall->options.samples, "Texts per length and kind")->capture_default_str();
  rec->add_option("--facts", recall->options.facts, "Facts in each text; 0: varied")->capture_default_str();
  rec->add_option(
         "--question", recall->question,
         "turns: of a chat; known: each in a prompt of its own; late: each after the text's cache is compressed")
      ->check(CLI::IsMember({"turns", "known", "late"}))
      ->capture_default_str();
  rec->add_option("--seed", recall->options.seed, "Same seed, same texts")->capture_default_str();
  recall->model.add_to(*rec);
  rec->callback([&program, recall] { program.run = [&program, recall] { return recall->run(program.json); }; });

  add_sweep(program, *verb);
}

}  // namespace godwit::cli
