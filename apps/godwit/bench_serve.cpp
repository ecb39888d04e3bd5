// godwit bench serve: load on a server, and how it bears it.
#include <cstdlib>
#include <iostream>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "eval/load/report.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "server/server.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

// A server in this process, for `--self`. The order of its members lets none outlive what it uses.
struct OwnServer {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Service> service;
  std::unique_ptr<server::Server> server;

  static Result<OwnServer> start(const ModelFlags& model, const ServiceOptions& options) {
    OwnServer own;
    GODWIT_ASSIGN(Engine engine, model.open());
    own.engine = std::make_unique<Engine>(std::move(engine));
    GODWIT_ASSIGN(own.service, Service::start(*own.engine, options));
    server::Options listen;
    listen.port = 0;
    listen.log = false;
    GODWIT_ASSIGN(own.server, server::Server::listen(listen));
    own.server->serve(*own.engine, *own.service);
    return own;
  }
};

struct BenchServe {
  std::string url, key_variable, key_file, trace_file, html_file;
  std::string prompt = "lognormal:256,0.8,4096", output = "lognormal:64,0.6,512", api = "chat";
  bool self = false, let_end = false;
  ModelFlags model;
  ServiceOptions service;
  load::RunOptions run_options;
  load::WorkloadOptions workload;
  std::vector<const CLI::App*> for_self;  // groups of options that say what --self starts
  int64_t requests = 0;
  double duration = 0, tokens_per_word = 0, ttft_target_ms = 0, per_token_target_ms = 0;

  Status check() const {
    if (self == !url.empty())
      return errorf(ErrorCode::kInvalidArgument, "give the URL of a server to measure, or --self, and not both");
    for (const CLI::App* group : for_self)
      for (const CLI::Option* option : group->get_options())
        if (!self && option->count() > 0)
          return errorf(ErrorCode::kInvalidArgument, "{} is for --self; the server at {} has its own",
                        option->get_name(), url);
    if ((workload.rate > 0) == (run_options.users > 0) && trace_file.empty())
      return errorf(ErrorCode::kInvalidArgument,
                    "give --rate (Poisson arrivals) or --users (each waits for its answer)");
    if (!trace_file.empty() && workload.rate > 0)
      return errorf(ErrorCode::kInvalidArgument, "--trace says itself when requests arrive; leave --rate out");
    if (trace_file.empty() && requests == 0 && duration == 0)
      return errorf(ErrorCode::kInvalidArgument, "say when to end: give -n requests or --duration seconds");
    if ((workload.prefixes > 0) != (workload.prefix_tokens > 0))
      return errorf(ErrorCode::kInvalidArgument, "--prefixes and --prefix-tokens go together");
    if (!key_variable.empty() && !key_file.empty())
      return errorf(ErrorCode::kInvalidArgument, "give --api-key-env or --api-key-file, not both");
    return {};
  }

  Result<std::string> key() const {
    if (!key_variable.empty()) {
      const char* value = std::getenv(key_variable.c_str());
      if (value == nullptr || *value == 0)
        return errorf(ErrorCode::kInvalidArgument, "--api-key-env: there is no variable '{}', or it is empty",
                      key_variable);
      return value;
    }
    if (key_file.empty()) return "";
    GODWIT_ASSIGN(std::string text, read_input(key_file));
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    if (text.empty()) return errorf(ErrorCode::kInvalidArgument, "{}: there is no key in it", key_file);
    return text;
  }

  Result<load::Workload> requests_to_send() {
    if (!trace_file.empty()) {
      GODWIT_ASSIGN(const std::string text, read_input(trace_file));
      GODWIT_ASSIGN(std::vector<load::Request> trace, load::parse_trace(text, trace_file));
      if (requests > 0 && static_cast<size_t>(requests) < trace.size()) trace.resize(static_cast<size_t>(requests));
      return load::Workload(std::move(trace));
    }
    GODWIT_ASSIGN(workload.prompt, load::Lengths::parse(prompt));
    GODWIT_ASSIGN(workload.output, load::Lengths::parse(output));
    if (requests > 0) workload.requests = requests;
    return load::Workload(workload);
  }

  std::string describe() const {
    std::string text = run_options.users > 0 ? fmt::format("{} users, each waits for its answer", run_options.users)
                       : trace_file.empty()  ? fmt::format("Poisson arrivals, {:g} a second", workload.rate)
                                             : std::string("arrivals of the trace");
    text += trace_file.empty() ? fmt::format("; prompt {}, output {} tokens", prompt, output)
                               : fmt::format("; trace {}", trace_file);
    if (workload.prefixes > 0)
      text += fmt::format("; {} shared prefixes of {} tokens", workload.prefixes, workload.prefix_tokens);
    return text + fmt::format("; seed {}", workload.seed);
  }

  Status run(bool json) {
    GODWIT_TRY(check());
    GODWIT_ASSIGN(const std::string secret, key());
    GODWIT_ASSIGN(load::Workload to_send, requests_to_send());
    if (!self) {
      GODWIT_TRY(load::Target::parse(url));
    }
    InterruptScope interrupt;
    GODWIT_ASSIGN(auto page, begin_output(html_file));
    std::optional<OwnServer> own;
    if (self) {
      GODWIT_ASSIGN(own, OwnServer::start(model, service));
      url = fmt::format("http://127.0.0.1:{}", own->server->port());
    }
    GODWIT_ASSIGN(const load::Target target, load::Target::parse(url));
    boost::asio::io_context io(1);
    GODWIT_ASSIGN(auto client, load::HttpClient::open(io, target, secret));
    load::RunOptions& o = run_options;
    o.chat = api == "chat";
    o.ignore_eos = !let_end;
    o.prompts.seed = workload.seed;
    if (duration > 0) o.duration_seconds = duration;
    if (o.model.empty()) {
      GODWIT_ASSIGN(o.model, load::ask_model(io, *client));
    }
    if (tokens_per_word > 0) {
      o.prompts.tokens_per_word = tokens_per_word;
    } else {
      GODWIT_TRY(load::calibrate(io, *client, o));
    }
    ProgressBar bar("load");
    auto on_progress = [&](const load::Progress& p) {
      bar.show(p.share, fmt::format("  {} answered, {} failed, {} open  {:.0f} tok/s", p.answered, p.failed, p.running,
                                    p.seconds > 0 ? static_cast<double>(p.tokens) / p.seconds : 0));
    };
    const load::LoadRun found = load::run_load(io, *client, o, std::move(to_send), on_progress, interrupt.token());
    bar.clear();
    GODWIT_TRY(report(found, json, page));
    if (found.open_at_stop) return errorf(ErrorCode::kCancelled, "{}", load::stopped_text(found));
    return {};
  }

  Status report(const load::LoadRun& found, bool json, std::optional<AtomicFile>& page) const {
    const load::Targets targets{ttft_target_ms / 1e3, per_token_target_ms / 1e3};
    const load::Summary summary = load::summarize(found, targets);
    if (summary.answered == 0) {
      if (found.open_at_stop)
        return errorf(ErrorCode::kCancelled, "stopped before a request was answered, with {} open",
                      *found.open_at_stop);
      const auto most = std::max_element(found.failures.begin(), found.failures.end(),
                                         [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
      if (most == found.failures.end())
        return errorf(ErrorCode::kInvalidArgument, "no request was due within the {:g} s; give a longer --duration",
                      duration);
      return errorf(ErrorCode::kIo, "none of {} requests was answered; {} failed by {}: {}", found.records.size(),
                    most->second.count, most->first, most->second.example);
    }
    const load::Heading heading{
        .url = self ? url + " (in this process)" : url, .model = run_options.model, .api = api, .workload = describe()};
    GODWIT_TRY(finish_output(page, load::load_html(found, summary, targets, heading)));
    if (json)
      std::cout << load::load_json(found, summary, targets, heading)
                       .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                << "\n";
    else
      std::cout << load::load_table(found, summary, targets, heading);
    return {};
  }
};

}  // namespace

void add_bench_serve(Program& program, CLI::App& bench) {
  auto state = std::make_shared<BenchServe>();
  CLI::App* verb = bench.add_subcommand("serve", "Load a server that speaks OpenAI's API, and measure how it bears it");
  verb->add_flag("--json", program.json, "Print results as JSON on stdout");
  const CLI::Range positive(1, 1 << 30);
  const CLI::Validator positive_real = real_between(1e-6, 1e6);
  verb->add_option("url", state->url, "http://HOST:PORT or http://HOST:PORT/v1")->check(kNotEmpty);
  verb->add_flag("--self", state->self, "Start a server in this process, with the model options below");
  auto* load = verb->add_option_group("load");
  load->add_option("--rate", state->workload.rate, "Requests a second, Poisson arrivals")->check(positive_real);
  load->add_option("--users", state->run_options.users, "Closed loop: so many, and each waits for its answer")
      ->check(CLI::Range(1, 10000));
  load->add_option("--trace", state->trace_file,
                   "JSON lines with arrival (seconds), prompt_tokens, output_tokens, and prefix, prefix_tokens")
      ->check(kNotEmpty);
  load->add_option("-n,--requests", state->requests, "End after so many")->check(CLI::Range(1, 10'000'000));
  load->add_option("--duration", state->duration, "Begin no request after so many seconds")
      ->check(real_between(0.01, 86400));
  load->add_option("--prompt", state->prompt, "Tokens: N, uniform:LEAST,MOST or lognormal:MEDIAN,SIGMA,MOST")
      ->capture_default_str();
  load->add_option("--output", state->output, "Tokens, likewise")->capture_default_str();
  load->add_option("--prefixes", state->workload.prefixes, "Each prompt begins with one of so many shared texts")
      ->check(positive);
  load->add_option("--prefix-tokens", state->workload.prefix_tokens, "Their length, on top of --prompt")
      ->check(CLI::Range(1, 1 << 24));
  load->add_option("--seed", state->workload.seed, "Same seed, same requests")->capture_default_str();
  auto* requests = verb->add_option_group("requests");
  requests->add_option("--api", state->api, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  requests->add_option("--model-name", state->run_options.model, "As the server calls it (default: its first)")
      ->check(kNotEmpty);
  requests->add_flag("--let-end", state->let_end, "Do not send ignore_eos: answers may be shorter than asked for");
  requests
      ->add_option("--tokens-per-word", state->tokens_per_word,
                   "Of the prompts, which are words (default: two requests find out)")
      ->check(real_between(0.05, 50));
  requests->add_option("--api-key-env", state->key_variable, "Environment variable with the API key")->check(kNotEmpty);
  requests->add_option("--api-key-file", state->key_file, "File with the API key")->check(kNotEmpty);
  requests->add_option("--timeout", state->run_options.timeout_seconds, "Seconds for one answer")
      ->capture_default_str()
      ->check(real_between(0.01, 86400));
  requests
      ->add_option("--max-in-flight", state->run_options.most_in_flight, "Requests open at once with --rate or --trace")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  auto* report = verb->add_option_group("report");
  report->add_option("--ttft-target", state->ttft_target_ms, "Goodput: milliseconds to the first token")
      ->check(positive_real);
  report->add_option("--itl-target", state->per_token_target_ms, "Goodput: mean milliseconds between tokens")
      ->check(positive_real);
  report->add_option("--html", state->html_file, "Write a page with plots")->check(kNotEmpty);
  auto* server = verb->add_option_group("server, with --self");
  server->add_option("--max-running", state->service.most_running, "Answers computed at once")->capture_default_str();
  state->model.add_to(*verb);
  state->for_self = {server, verb->get_option_group("model"), state->model.ranks_group};
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
