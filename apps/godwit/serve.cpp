// godwit serve: the model behind the APIs that clients already use.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "options.h"
#include "server/server.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct Serve {
  ModelFlags model;
  server::Options options;
  ServiceOptions service;
  std::string body_limit = "16MiB", all_bodies_limit = "512MiB", header_limit = "16KiB";
  bool no_prefix_cache = false, no_log = false;

  Status run() {
    server::Options opened = options;
    opened.log = !no_log;
    service.prefix_cache = !no_prefix_cache;
    GODWIT_ASSIGN(opened.limits.body_bytes, parse_bytes(body_limit));
    GODWIT_ASSIGN(opened.limits.all_body_bytes, parse_bytes(all_bodies_limit));
    GODWIT_ASSIGN(opened.limits.header_bytes, parse_bytes(header_limit));
    // A body that can never be taken gets 413, and not 503 again and again.
    opened.limits.body_bytes = std::min(opened.limits.body_bytes, opened.limits.all_body_bytes);
    GODWIT_ASSIGN(auto server, server::Server::listen(opened));  // before the model: a port in use shows at once
    GODWIT_ASSIGN(Engine engine, model.open());
    service.on_lost = [&] { server->stop(); };
    service.on_alone = [](const std::string& why) {
      std::fputs(fmt::format("godwit: {}; this server goes on with one rank, and what had begun begins anew: start the "
                             "job again when it suits, to have them all\n",
                             why)
                     .c_str(),
                 stderr);
    };
    GODWIT_ASSIGN(auto running, Service::start(engine, service));
    server->serve(engine, *running);
    say_what_fits(engine.info(), opened, server->port());
    Status ended = server->wait();
    GODWIT_TRY(running->status());
    return ended;
  }

  void say_what_fits(const EngineInfo& info, const server::Options& opened, uint16_t port) const {
    const double tokens = static_cast<double>(info.kv_budget_bytes) / info.kv_bytes_per_token;
    const std::string text = fmt::format(
        "godwit: serving {} on {}://{}:{} ({}), {} of weights; {} of KV memory hold {:.0f} tokens of {}: {:.1f} "
        "sequences of the full {} tokens, or {} at once of {:.0f} each\n",
        info.model, opened.tls_certificate.empty() ? "http" : "https",
        opened.address.find(':') == std::string::npos ? opened.address : "[" + opened.address + "]", port, info.backend,
        bytes_text(info.weight_bytes), bytes_text(info.kv_budget_bytes), tokens, info.kv_codec,
        tokens / static_cast<double>(info.context_tokens), info.context_tokens, service.most_running,
        std::min(static_cast<double>(info.context_tokens), tokens / service.most_running));
    std::fputs(text.c_str(), stderr);
  }
};

}  // namespace

void add_serve(Program& program) {
  auto state = std::make_shared<Serve>();
  // Without --json: it prints no results.
  CLI::App* verb = program.app.add_subcommand("serve", "Answer requests over HTTP: OpenAI's and Anthropic's APIs");
  server::Options& o = state->options;
  server::Limits& l = o.limits;
  // CLI11 reads configuration files for the program only; what serve does not know falls through to there.
  program.app.set_config("--config", "", "TOML file with options of verbs, e.g. [serve] and below it port = 8000")
      ->group("");
  program.app.allow_config_extras(CLI::config_extras_mode::error);
  verb->allow_config_extras(CLI::config_extras_mode::error);
  verb->fallthrough();
  verb->footer("--config FILE reads these options from a TOML file: a line [serve], then lines like port = 8000.");
  auto* server = verb->add_option_group("server");
  server->add_option("--host", o.address, "IP address to listen on; 0.0.0.0 for all")
      ->capture_default_str()
      ->check(kNotEmpty);
  server->add_option("--port", o.port, "Port; 0 for any that is free")->capture_default_str();
  server
      ->add_option("--served-model-name", o.model_names,
                   "What clients call the model; may repeat (default: its file's name)")
      ->check(kNotEmpty);
  server->add_option("--api-keys", o.key_file, "File of lines NAME:KEY; without it everybody may ask")
      ->check(kNotEmpty);
  server->add_option("--tls-cert", o.tls_certificate, "Certificate chain in PEM form: serve HTTPS")->check(kNotEmpty);
  server->add_option("--tls-key", o.tls_key, "Its private key")->check(kNotEmpty);
  server->add_option("--io-threads", o.threads, "Threads for sockets")->capture_default_str()->check(CLI::Range(1, 64));
  server->add_flag("--client-priorities", o.client_priorities, "Let requests say how urgent they are");
  server->add_flag("--tools-in-prompt", o.tools_in_prompt,
                   "Describe tools in the system message where the model's template takes none");
  server
      ->add_option("--allow-kv-policy", state->service.kv.policies,
                   "KV policy that requests may choose, NAME[:k=v,...], or none for a whole cache; may repeat")
      ->check(kNotEmpty);
  server
      ->add_option("--least-kv-budget", state->service.kv.least_budget,
                   "Least KV budget that requests may choose, as --kv-budget")
      ->check(kNotEmpty);
  server->add_option("--largest-kv-budget", state->service.kv.largest_budget, "The largest")->check(kNotEmpty);
  server
      ->add_option("--allow-ranks", state->service.most_ranks,
                   "With mpirun: how many ranks a request may ask for, at most (default: none may ask)")
      ->check(CLI::PositiveNumber);
  server->add_flag("--no-prefix-cache", state->no_prefix_cache, "Keep nothing of a prompt for later requests");
  server->add_flag("--no-request-log", state->no_log, "No line per request on stderr");
  auto* limits = verb->add_option_group("limits");
  const CLI::Range positive(1, 1 << 30);
  limits->add_option("--max-running", state->service.most_running, "Answers computed at once")->capture_default_str();
  limits->add_option("--max-waiting", state->service.most_waiting, "Answers that may wait; more get 429")
      ->capture_default_str();
  limits->add_option("--max-connections", l.connections, "Open connections")->capture_default_str()->check(positive);
  limits->add_option("--max-body", state->body_limit, "Size of a request's body")->capture_default_str();
  limits
      ->add_option("--max-all-bodies", state->all_bodies_limit, "Size of all that arrive or are being prepared at once")
      ->capture_default_str();
  limits->add_option("--max-header", state->header_limit, "Size of a request's headers")->capture_default_str();
  limits->add_option("--max-prompt-tokens", l.prompt_tokens, "Tokens of a prompt (default: what the context holds)")
      ->check(positive);
  limits->add_option("--max-output-tokens", l.output_tokens, "Tokens of an answer (default: what the context holds)")
      ->check(positive);
  limits->add_option("--max-choices", l.choices, "Answers to one request")->capture_default_str()->check(positive);
  limits->add_option("--request-timeout", l.request_seconds, "Seconds in which a request must have arrived")
      ->capture_default_str()
      ->check(positive);
  limits->add_option("--idle-timeout", l.idle_seconds, "Seconds between two requests of a connection")
      ->capture_default_str()
      ->check(positive);
  limits->add_option("--write-timeout", l.write_seconds, "Seconds in which a client may read nothing")
      ->capture_default_str()
      ->check(positive);
  state->model.add_to(*verb);
  verb->callback([&program, state] { program.run = [state] { return state->run(); }; });
}

}  // namespace godwit::cli
