// godwit tune million, godwit tune think, godwit tune xquant: side files of KV codecs.
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/codec_fit.h"
#include "eval/weight_bases.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct TuneCodec {
  ModelFlags model;
  std::string codec, text_file, out;
  QueryFitOptions queries;
  CodebookFitOptions books;

  // REQUIRES: no KV policy, which add_model_to() leaves no way to give.
  Status run(bool json) {
    std::string text;
    if (codec != "xquant") {
      GODWIT_ASSIGN(text, read_input(text_file));
    }
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    std::vector<CodecTable> tables;
    std::vector<std::pair<std::string, uint32_t>> settings;
    if (codec == "million") {
      ProgressBar bar("tune");
      books.on_progress = [&](int done, int total) { bar.show(static_cast<double>(done) / total); };
      GODWIT_ASSIGN(tables, fit_codebooks(engine, text, books, interrupt.token()));
      settings.emplace_back("width", static_cast<uint32_t>(books.width));
    } else if (codec == "xquant") {
      GODWIT_ASSIGN(WeightBases bases, fit_weight_bases(engine, interrupt.token()));
      tables = std::move(bases.tables);
      settings = std::move(bases.settings);
    } else {
      GODWIT_ASSIGN(tables, fit_queries(engine, text, queries, interrupt.token()));
    }
    GODWIT_TRY(write_codec_tables(codec, engine.info().model, settings, tables, out));
    if (!json) {
      std::cout << fmt::format("{} is for --kv-codec {}:file={}\n", out, codec, out);
      return {};
    }
    nlohmann::ordered_json report = {{"file", out}, {"codec", codec}, {"model", engine.info().model}};
    for (const CodecTable& table : tables) report["tables"][table.name] = table.shape;
    std::cout << json_text(report) << "\n";
    return {};
  }
};

}  // namespace

void add_tune_codecs(Program& program, CLI::App& tune) {
  auto add = [&](const char* codec, const char* description) {
    auto fit = std::make_shared<TuneCodec>();
    fit->codec = codec;
    CLI::App* one = tune.add_subcommand(codec, description);
    one->add_flag("--json", program.json, "Print results as JSON on stdout");
    one->add_option("-o,--output", fit->out, "The file to write")->required()->check(kNotEmpty);
    const bool books = fit->codec == "million";
    if (fit->codec != "xquant") {
      one->add_option("-f,--file", fit->text_file, "A text like those that will be read")->required();
      one->add_option("--tokens", books ? fit->books.tokens : fit->queries.tokens, "Tokens of the text that are used")
          ->capture_default_str();
    }
    if (books) {
      one->add_option("--width", fit->books.width, "Numbers to a code of 8 bits: 2 or 4")->capture_default_str();
      one->add_option("--iterations", fit->books.iterations, "Of k-means")
          ->check(CLI::Range(1, 1000))
          ->capture_default_str();
      one->add_option("--seed", fit->books.seed, "Same seed, same codebooks")->capture_default_str();
    }
    fit->model.add_model_to(*one->add_option_group("model"));
    one->callback([&program, fit] { program.run = [&program, fit] { return fit->run(program.json); }; });
  };
  add("million", "Codebooks of keys and values, for --kv-codec million");
  add("think", "Which channels queries use, for --kv-codec think");
  add("xquant", "Singular vectors of the weights of K and V, for --kv-codec xquant; needs no text");
}

}  // namespace godwit::cli
