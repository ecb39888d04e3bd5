// godwit bench ring: a prompt over the ranks that mpirun started, and where the time of its attention goes.
#include <algorithm>
#include <iostream>
#include <map>
#include <random>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "dist/stopwatch.h"
#include "engine/memory_plan.h"
#include "engine/ranks_probe.h"
#include "interrupt.h"
#include "options.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

using ordered_json = nlohmann::ordered_json;

uint64_t bytes_of(const RankReport& r) {
  return r.slots.bytes + r.pages.bytes + r.queries.bytes + r.states.bytes;
}

struct Step {
  int32_t begin = 0, end = 0;
  dist::Shares shares;
};

struct BenchRing {
  ModelFlags model;
  int prompt = 4096, depth = 0, generate = 0, repetitions = 1;
  std::vector<std::string> rings = {"auto"};
  std::vector<double> sweep;  // percents of the prompt that are new

  Status check() const {
    if (prompt < 1 || depth < 0 || generate < 0 || repetitions < 1)
      return errorf(ErrorCode::kInvalidArgument,
                    "-p, -d, -n and -r are numbers of tokens and runs; -p and -r from 1 on");
    for (const std::string& ring : rings)
      if (ring != "auto" && ring != "pass-kv" && ring != "pass-q")
        return errorf(ErrorCode::kInvalidArgument, "there is no ring '{}': give auto, pass-kv or pass-q", ring);
    for (double percent : sweep)
      if (!(percent > 0 && percent <= 100))
        return errorf(ErrorCode::kInvalidArgument, "--sweep takes percents from 0 to 100, not {}", percent);
    if (!sweep.empty() && depth > 0)
      return errorf(ErrorCode::kInvalidArgument, "--sweep says what is in the cache before; leave -d out");
    return {};
  }

  static std::vector<TokenId> random_tokens(int count, int vocab_size) {
    std::mt19937 generator(1);
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& token : tokens) token = static_cast<TokenId>(generator() % static_cast<uint32_t>(vocab_size));
    return tokens;
  }

  Status run(bool json) {
    GODWIT_TRY(check());
    model.options.context_tokens = depth + prompt + generate + 1;
    model.options.profile = true;
    if (job_ranks() && model.options.rank_options.prefill_ranks == 0)
      model.options.rank_options.prefill_ranks = job_ranks()->size();
    GODWIT_ASSIGN(Engine engine, model.open());
    InterruptScope interrupt;
    const auto tokens = random_tokens(depth + prompt, engine.info().vocab_size);
    if (!sweep.empty()) return run_sweep(engine, tokens, interrupt.token(), json);
    Session base = engine.start();
    GODWIT_TRY(base.append(std::span(tokens).first(static_cast<size_t>(depth))));
    GODWIT_TRY(base.prefill({}, interrupt.token()));
    ordered_json rows = ordered_json::array();
    for (const std::string& ring : rings) {
      RanksProbe::set_ring(engine, ring);
      for (int i = 0; i < repetitions; ++i) {
        GODWIT_ASSIGN(ordered_json row, measure(engine, base, tokens, interrupt.token()));
        row["ring"] = ring;
        if (!json) print(row, rows.empty());
        rows.push_back(std::move(row));
      }
    }
    if (json) std::cout << rows.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return {};
  }

  // What the choice between both ways costs, over shares of new tokens.
  Status run_sweep(const Engine& engine, std::span<const TokenId> tokens, std::stop_token stop, bool json) const {
    const Team* team = RanksProbe::team(engine);
    if (team == nullptr)
      return errorf(ErrorCode::kInvalidArgument, "--sweep compares ways between ranks; start several with mpirun");
    Session all = engine.start();
    GODWIT_TRY(all.append(tokens));
    GODWIT_TRY(all.prefill({}, stop));
    ordered_json rows = ordered_json::array();
    if (!json)
      std::cout
          << "| new | tokens | pass-kv s | pass-q s | chosen | better | loss |\n|---:|---:|---:|---:|---|---|---:|\n";
    for (double percent : sweep) {
      BenchRing point = *this;
      point.prompt = std::max(1, static_cast<int>(prompt * percent / 100));
      point.depth = prompt - point.prompt;
      Session base = all.fork();
      base.truncate(static_cast<size_t>(point.depth));
      GODWIT_ASSIGN(const ordered_json row, point.compare(engine, base, tokens, stop));
      if (!json)
        std::cout << fmt::format("| {}% | {} | {:.3f} | {:.3f} | {} | {} | {:.1f}% |", percent, point.prompt,
                                 row["pass_kv_seconds"].get<double>(), row["pass_q_seconds"].get<double>(),
                                 row["chosen"].get<std::string>(), row["better"].get<std::string>(),
                                 row["loss"].get<double>() * 100)
                  << std::endl;
      rows.push_back(row);
    }
    if (json) std::cout << rows.dump(2) << "\n";
    return {};
  }

  // Medians of runs in turns. Where all steps are chosen to go one way, that way's time is the choice's.
  Result<ordered_json> compare(const Engine& engine, const Session& base, std::span<const TokenId> tokens,
                               std::stop_token stop) const {
    const Team& team = *RanksProbe::team(engine);
    RanksProbe::set_ring(engine, "auto");
    int steps = 0, passed_q = 0;
    for (int32_t begin = depth; begin < depth + prompt; begin += team.step_tokens(), ++steps)
      passed_q += team.mode_of(begin, std::min(depth + prompt, begin + team.step_tokens())) == dist::RingMode::kPassQ;
    const bool mixed = passed_q > 0 && passed_q < steps;
    std::map<std::string, std::vector<double>> seconds;
    for (int i = 0; i < repetitions; ++i) {
      for (const char* ring : {"pass-kv", "pass-q", "auto"}) {
        if (!mixed && std::string_view(ring) == "auto") continue;
        RanksProbe::set_ring(engine, ring);
        GODWIT_ASSIGN(const ordered_json row, measure(engine, base, tokens, stop));
        seconds[ring].push_back(row["seconds"].get<double>());
      }
    }
    auto median = [&](const char* ring) {
      std::vector<double>& list = seconds[ring];
      std::sort(list.begin(), list.end());
      return list[list.size() / 2];
    };
    const double kv = median("pass-kv"), q = median("pass-q");
    const double chosen = mixed ? median("auto") : passed_q > 0 ? q : kv;
    return ordered_json{{"new_tokens", prompt},
                        {"depth", depth},
                        {"pass_kv_seconds", kv},
                        {"pass_q_seconds", q},
                        {"chosen_seconds", chosen},
                        {"chosen", mixed          ? "both"
                                   : passed_q > 0 ? "pass-q"
                                                  : "pass-kv"},
                        {"better", q < kv ? "pass-q" : "pass-kv"},
                        {"loss", chosen / std::min(kv, q) - 1}};
  }

  Result<ordered_json> measure(const Engine& engine, const Session& base, std::span<const TokenId> tokens,
                               std::stop_token stop) const {
    Team* team = RanksProbe::team(engine);
    std::vector<RankReport> before, after;
    if (team != nullptr) {
      GODWIT_ASSIGN(before, team->report());
    }
    const EngineInfo info = engine.info();
    Session session = base.fork();
    GODWIT_TRY(session.append(tokens.subspan(static_cast<size_t>(depth))));
    // Steps and who computes how much of them follow what came before.
    std::vector<Step> steps;
    Step next{depth, depth, team != nullptr ? team->shares() : dist::Shares()};
    const auto on_progress = [&](const Progress& progress) {
      next.end = depth + static_cast<int32_t>(progress.done);
      steps.push_back(next);
      next = {next.end, next.end, team != nullptr ? team->shares() : dist::Shares()};
    };
    const dist::Stopwatch watch;
    const double cpu = dist::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    GODWIT_TRY(session.prefill(on_progress, stop));
    const double seconds = watch.seconds(), cpu_seconds = dist::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (team != nullptr) {
      GODWIT_ASSIGN(after, team->report());
    }
    const EngineInfo now = engine.info();
    ordered_json row = {{"ranks", info.ranks},
                        {"link", info.ring},
                        {"prompt_tokens", prompt},
                        {"depth", depth},
                        {"seconds", seconds},
                        {"cpu_seconds", cpu_seconds},
                        {"tokens_per_second", prompt / seconds},
                        {"matmul_seconds", now.matmul_seconds - info.matmul_seconds},
                        {"attention_seconds", now.attention_seconds - info.attention_seconds},
                        {"model", info.model},
                        {"backend", info.backend},
                        {"kv_codec", info.kv_codec},
                        {"chunk", info.prefill_chunk}};
    if (team != nullptr) row.update(ring_row(*team, steps, before, after));
    if (generate > 0) {
      GenerateOptions options;
      options.max_tokens = generate + 1;
      options.ignore_eos = true;
      GODWIT_ASSIGN(Generation answer, session.generate(options, {}, {}, stop));
      row["decode_seconds_per_token"] = answer.decode_seconds / generate;
    }
    return row;
  }

  // Seconds and bytes of one layer, over the whole prompt.
  static ordered_json ring_row(const Team& team, const std::vector<Step>& steps, const std::vector<RankReport>& before,
                               const std::vector<RankReport>& after) {
    dist::RingBytes formula;
    int passed_q = 0;
    dist::RingPrediction predicted;
    for (const Step& step : steps) {
      const dist::RingBytes bytes = team.formula_bytes(step.begin, step.end, step.shares);
      formula.slots += bytes.slots, formula.pages += bytes.pages;
      formula.queries += bytes.queries, formula.states += bytes.states;
      passed_q += team.mode_of(step.begin, step.end) == dist::RingMode::kPassQ ? 1 : 0;
      const dist::RingPrediction p = team.predict(step.begin, step.end);
      predicted.pass_kv_s += p.pass_kv_s, predicted.pass_q_s += p.pass_q_s;
    }
    const auto layers =
        static_cast<double>(after[0].times.layers - before[0].times.layers) / static_cast<double>(steps.size());
    ordered_json ranks = ordered_json::array();
    uint64_t sent = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const RankReport &a = before[i], &b = after[i];
      const uint64_t bytes = bytes_of(b) - bytes_of(a);
      sent += bytes;
      ranks.push_back({{"rows", b.times.rows - a.times.rows},
                       {"attention_seconds", (b.times.attention_s - a.times.attention_s) / layers},
                       {"exposed_seconds", (b.times.exposed_s - a.times.exposed_s) / layers},
                       {"merge_seconds", (b.times.merge_s - a.times.merge_s) / layers},
                       {"stolen_seconds", (b.times.stolen_s - a.times.stolen_s) / layers},
                       {"relieved_seconds", (b.times.relieved_s - a.times.relieved_s) / layers},
                       {"total_seconds", (b.times.total_s - a.times.total_s) / layers},
                       {"cpu_seconds", (b.cpu_s - a.cpu_s) / layers},
                       {"waited_cpu_seconds", (b.waited_cpu_s - a.waited_cpu_s) / layers},
                       {"sent_bytes", static_cast<double>(bytes) / layers}});
    }
    return {{"steps", steps.size()},
            {"steps_pass_q", passed_q},
            {"layers", layers},
            {"per_layer", std::move(ranks)},
            {"sent_bytes", static_cast<double>(sent) / layers},
            {"formula_bytes", formula.total()},
            {"predicted_pass_kv_seconds", predicted.pass_kv_s},
            {"predicted_pass_q_seconds", predicted.pass_q_s},
            {"link_latency_seconds", team.costs().link.send.latency_s},
            {"link_bytes_per_second", team.costs().link.send.bytes_per_second}};
  }

  static void print(const ordered_json& row, bool first) {
    auto number = [&](const char* key) { return row[key].get<double>(); };
    if (first && row.contains("per_layer"))
      std::cout << fmt::format("{} ranks; link {:.0f} µs, {:.2f} GB/s; {}\n\n", row["ranks"].get<int>(),
                               number("link_latency_seconds") * 1e6, number("link_bytes_per_second") / 1e9,
                               row["backend"].get<std::string>());
    std::cout << fmt::format("{}: {} tokens after {} in {:.3f} s ({:.1f} tokens/s; products {:.3f} s)\n",
                             row["ring"].get<std::string>(), row["prompt_tokens"].get<int>(), row["depth"].get<int>(),
                             number("seconds"), number("tokens_per_second"), number("matmul_seconds"));
    if (row.contains("decode_seconds_per_token"))
      std::cout << fmt::format("decode: {:.2f} ms per token\n", number("decode_seconds_per_token") * 1e3);
    if (!row.contains("per_layer")) return;
    std::cout << fmt::format(
        "{} of {} steps pass-q; predicted per layer: pass-kv {:.2f} ms, pass-q {:.2f} ms; sent {} per layer, by the "
        "formulas {}\n\n| rank | rows | attention ms | for others ms | exposed ms | merge ms | "
        "all ms | sent |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        row["steps_pass_q"].get<int>(), row["steps"].get<int>(), number("predicted_pass_kv_seconds") * 1e3,
        number("predicted_pass_q_seconds") * 1e3, bytes_text(static_cast<uint64_t>(number("sent_bytes"))),
        bytes_text(static_cast<uint64_t>(number("formula_bytes"))));
    size_t rank = 0;
    for (const ordered_json& r : row["per_layer"])
      std::cout << fmt::format("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} |\n", rank++,
                               r["rows"].get<uint64_t>(), r["attention_seconds"].get<double>() * 1e3,
                               r["stolen_seconds"].get<double>() * 1e3, r["exposed_seconds"].get<double>() * 1e3,
                               r["merge_seconds"].get<double>() * 1e3, r["total_seconds"].get<double>() * 1e3,
                               bytes_text(static_cast<uint64_t>(r["sent_bytes"].get<double>())));
    std::cout << std::endl;
  }
};

}  // namespace

void add_bench_ring(Program& program, CLI::App& bench) {
  auto state = std::make_shared<BenchRing>();
  CLI::App* verb = bench.add_subcommand("ring", "With mpirun: a prompt over all ranks, attention and messages apart");
  verb->add_flag("--json", program.json, "Print results as JSON on stdout");
  verb->add_option("-p,--prompt", state->prompt, "Prompt tokens")->capture_default_str();
  verb->add_option("-d,--depth", state->depth, "Tokens that are in the cache before")->capture_default_str();
  verb->add_option("-n,--generate", state->generate, "Tokens to generate after it")->capture_default_str();
  verb->add_option("-r,--repetitions", state->repetitions, "Runs of each")->capture_default_str();
  verb->add_option("--rings", state->rings, "Ways to compare: auto,pass-kv,pass-q")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  verb->add_option("--sweep", state->sweep,
                   "Instead: percents of the prompt that are new, e.g. 1,10,100; both ways for each")
      ->delimiter(',')
      ->allow_extra_args(false);
  state->model.add_to(*verb);
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
