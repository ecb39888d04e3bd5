// godwit eval sweep: KV methods side by side.
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/sweep_report.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct Sweep {
  ModelFlags model;
  std::string file, rows_file, html_file;
  std::vector<std::string> policies, budgets = {"50%", "25%", "12.5%"}, codecs = {"f16"}, questions = {"known", "late"};
  std::string trigger;
  SweepOptions options;

  Status run(bool json) {
    GODWIT_ASSIGN(const std::string text, read_input(file));
    GODWIT_ASSIGN(options.engine, model.read());
    GODWIT_ASSIGN(options.methods, sweep_methods(policies, budgets, codecs, trigger));
    options.known = std::find(questions.begin(), questions.end(), "known") != questions.end();
    options.late = std::find(questions.begin(), questions.end(), "late") != questions.end();
    std::vector<SweepRow> done;
    if (!rows_file.empty()) {
      GODWIT_ASSIGN(done, read_sweep_rows(rows_file));
    }
    InterruptScope interrupt;
    ProgressBar bar("sweep");
    auto on_row = [&](const SweepRow& row) { return rows_file.empty() ? Status() : append_sweep_row(rows_file, row); };
    auto on_progress = [&](double share, const SweepMethod& now) {
      bar.show(share, fmt::format("  {} {}", now.name(), now.budget));
    };
    GODWIT_ASSIGN(const std::vector<SweepRow> rows,
                  run_sweep(options, text, done, on_row, on_progress, interrupt.token()));
    bar.clear();
    if (!html_file.empty()) {
      std::ofstream page(html_file, std::ios::binary);
      if (!(page << sweep_html(rows, "KV methods on " + file)) || !page.flush())
        return errorf(ErrorCode::kIo, "{}: cannot be written", html_file);
    }
    const std::vector<SweepSummary> summaries = summarize(rows);
    std::cout << (json ? sweep_json(summaries).dump(2) + "\n" : sweep_table(summaries));
    return {};
  }
};

}  // namespace

void add_sweep(Program& program, CLI::App& eval) {
  auto sweep = std::make_shared<Sweep>();
  CLI::App* verb =
      eval.add_subcommand("sweep", "KV methods side by side: recall, divergence, attention lost, memory and speed");
  verb->add_flag("--json", program.json, "Print results as JSON on stdout");
  verb->add_option("-f,--file", sweep->file, "The text to plant facts in")->required();
  verb->add_option("--kv-policy", sweep->policies,
                   "Policies NAME[:k=v,...] (default: all); random and streaming come along; none: codecs alone")
      ->check(kNotEmpty);
  verb->add_option("--kv-budget", sweep->budgets, "Budgets of each policy")->capture_default_str()->check(kNotEmpty);
  verb->add_option("--kv-codec", sweep->codecs, "How K and V are stored; each goes with each policy")
      ->capture_default_str();
  verb->add_option("--kv-trigger", sweep->trigger, "When entries are dropped (default: each policy's own)")
      ->check(kNotEmpty);
  verb->add_option("--length", sweep->options.lengths, "Context lengths in tokens")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--kind", sweep->options.kinds, "number, hex, lives, keeps, multi, chain, sum, shots")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--question", sweep->questions, "known when the cache is compressed, late, or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"known", "late"}))
      ->capture_default_str();
  verb->add_option("--facts", sweep->options.facts, "Facts in each text")->capture_default_str();
  verb->add_option("--samples", sweep->options.samples, "Texts of each length")->capture_default_str();
  verb->add_option("--seed", sweep->options.seed, "Same seed, same texts")->capture_default_str();
  verb->add_option("--rows", sweep->rows_file, "JSON lines of what was measured; rows that are there are not run again")
      ->check(kNotEmpty);
  verb->add_option("--html", sweep->html_file, "Write a page with plots")->check(kNotEmpty);
  auto* group = verb->add_option_group("model");
  sweep->model.add_model_to(*group);
  group->add_option("--kv-memory", sweep->model.kv_memory, "Hard limit of KV memory, e.g. 2GiB");
  verb->callback([&program, sweep] { program.run = [&program, sweep] { return sweep->run(program.json); }; });
}

}  // namespace godwit::cli
