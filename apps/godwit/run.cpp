// godwit run: a prompt in, the answer out.
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

nlohmann::json logprob_json(const Piece& piece) {
  nlohmann::json top = nlohmann::json::array();
  for (const TokenLogprob& other : piece.top) top.push_back({{"id", other.id}, {"logprob", other.logprob}});
  return {{"id", piece.id}, {"logprob", piece.logprob}, {"top", std::move(top)}};
}

struct Run {
  ModelFlags model;
  GenerateFlags generate;
  std::string prompt, file, system, schema_file;
  bool chat = false, stats = false, json_object = false;

  // FILE, a blank line, TEXT; or the one of them that is given.
  Result<std::string> input() const {
    if (file.empty()) return prompt;
    GODWIT_ASSIGN(std::string text, read_input(file));
    if (prompt.empty()) return text;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return text + "\n\n" + prompt;
  }

  Result<std::vector<TokenId>> tokens(const Engine& engine) const {
    GODWIT_ASSIGN(std::string text, input());
    if (text.empty()) return errorf(ErrorCode::kInvalidArgument, "the prompt is empty");
    if (!chat) return engine.tokenize(text);
    std::vector<ChatMessage> messages;
    if (!system.empty()) messages.push_back({"system", system});
    messages.push_back({"user", std::move(text)});
    return engine.chat_tokens(messages);
  }

  Result<std::shared_ptr<const Constraint>> constraint(const Engine& engine) const {
    if (json_object) return engine.json_object();
    if (schema_file.empty()) return nullptr;
    GODWIT_ASSIGN(const std::string schema, read_input(schema_file));
    auto made = engine.json_schema(schema);
    if (!made) return errorf(made.error().code, "{}: {}", schema_file, made.error().message);
    return made;
  }

  Status run(bool json) {
    if (prompt.empty() && file.empty())
      return errorf(ErrorCode::kInvalidArgument, "there is no prompt: give -p TEXT, -f FILE or both");
    if (!system.empty() && !chat)
      return errorf(ErrorCode::kInvalidArgument,
                    "--system needs --chat: without a template there is no system message");
    if (!model.chat_template_file.empty() && !chat)
      return errorf(ErrorCode::kInvalidArgument, "--chat-template needs --chat: without it no template is used");
    if (generate.options.sampling.logprobs >= 0 && !json)
      return errorf(ErrorCode::kInvalidArgument, "--logprobs needs --json: a text has no place for them");
    GODWIT_ASSIGN(GenerateOptions options, generate.read());
    GODWIT_ASSIGN(Engine engine, model.open());
    generate.take_recommended(engine, options.sampling);
    GODWIT_ASSIGN(options.constraint, constraint(engine));
    GODWIT_ASSIGN(auto prompt_tokens, tokens(engine));
    Session session = engine.start();
    GODWIT_TRY(session.append(prompt_tokens));
    InterruptScope interrupt;
    ProgressBar bar("read");
    nlohmann::json logprobs = nlohmann::json::array();
    bool writable = true;
    auto on_piece = [&](const Piece& piece) {
      bar.clear();
      if (json) {
        if (options.sampling.logprobs >= 0 && logprobs.size() < session.tokens().size() - prompt_tokens.size())
          logprobs.push_back(logprob_json(piece));
        return true;
      }
      writable = std::cout << piece.text << std::flush ? true : false;
      return writable;
    };
    auto on_progress = [&](const Progress& p) { bar.show_tokens(p.done, p.total); };
    GODWIT_ASSIGN(Generation answer, session.generate(options, on_piece, on_progress, interrupt.token()));
    bar.clear();
    if (!writable) return errorf(ErrorCode::kIo, "the answer cannot be written to stdout");
    if (json) {
      nlohmann::json report = generation_json(engine, session, answer);
      if (options.sampling.logprobs >= 0) report["logprobs"] = std::move(logprobs);
      std::cout << json_text(report, 2) << "\n";
    } else {
      std::cout << "\n";
    }
    if (stats) print_stats(engine, session, answer);
    if (answer.finish == FinishReason::kCancelled)
      return errorf(ErrorCode::kCancelled, "interrupted after {} tokens", answer.tokens.size());
    note_full_context(engine, answer);
    return early_end(answer);
  }
};

}  // namespace

void add_run(Program& program) {
  auto state = std::make_shared<Run>();
  CLI::App* verb = add_verb(program, "run", "Continue a text or answer a question about a file");
  verb->add_option("-p,--prompt", state->prompt, "The prompt; with -f it follows the file after a blank line");
  verb->add_option("-f,--file", state->file, "Read the prompt from this file; '-' is stdin")->check(kNotEmpty);
  verb->add_flag("--chat", state->chat, "Wrap the prompt in the model's chat template as one user message");
  verb->add_option("--system", state->system, "System message (with --chat)");
  verb->add_flag("--stats", state->stats, "Print times and KV memory to stderr at the end");
  auto* object = verb->add_flag("--json-object", state->json_object, "The answer is a JSON object");
  verb->add_option("--json-schema", state->schema_file, "The answer is JSON that the schema in this file accepts")
      ->check(kNotEmpty)
      ->excludes(object);
  state->model.add_to(*verb);
  state->generate.add_to(*verb);
  verb->add_option("--logprobs", state->generate.options.sampling.logprobs,
                   "With --json: log-probabilities of each token and of this many likeliest");
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
