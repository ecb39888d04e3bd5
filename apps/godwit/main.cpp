// godwit: one program, one verb per file. Answers go to stdout, everything else to stderr. Exit code 0: done, 1: failed
// with one line that says why, 2: wrong usage, 130: interrupted by Ctrl-C.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string_view>

#include <unistd.h>

#include "base/result.h"
#include "base/thread_pool.h"
#include "options.h"
#include "verbs.h"

namespace godwit::cli {

CLI::App* add_verb(Program& program, const char* name, const char* description) {
  CLI::App* verb = program.app.add_subcommand(name, description);
  verb->add_flag("--json", program.json, "Print results as JSON on stdout");
  return verb;
}

std::shared_ptr<Ranks>& job_ranks() {
  static std::shared_ptr<Ranks> ranks;
  return ranks;
}

namespace {

int exit_code(const Error& error) {
  std::fprintf(stderr, "godwit: %s\n", error.message.c_str());
  if (error.code == ErrorCode::kCancelled) return 130;  // as a shell reports a program that SIGINT ended
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

// The first word where a verb should stand and none of that name exists; null: all words fit.
const char* unknown_verb(CLI::App* app, int argc, char** argv) {
  auto verbs = [&] {  // without groups of options, which have no name
    return app->get_subcommands([](CLI::App* verb) { return !verb->get_name().empty(); });
  };
  for (int i = 1; i < argc && argv[i][0] != '-' && !verbs().empty(); ++i) {
    CLI::App* next = nullptr;
    for (CLI::App* verb : verbs())
      if (verb->get_name() == argv[i]) next = verb;
    if (next == nullptr) return argv[i];
    app = next;
  }
  return nullptr;
}

// An empty value is what an unset shell variable leaves; CLI11 would take it for 0, or for an option that was not
// given. It means something as a text to read only.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const bool text = option->check_name("--prompt") || option->check_name("--system");
    if (option->get_items_expected_min() > 0 && !(text && option->get_type_name() == "TEXT")) option->check(kNotEmpty);
  }
  for (CLI::App* below : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*below);
}

// A file that is mapped and then shortened, or whose disk fails, ends in this signal, wherever its bytes are read. A
// handler may do little more than say so and end.
void say_lost_file(int) {
  constexpr std::string_view kText =
      "godwit: a file in use was shortened or cannot be read any more (a model or a side file; with ranks also "
      "/dev/shm, when full); to replace one, write a new file and rename it\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(1);
}

// What a rank other than 0 does: no arguments are read, nothing is written.
int follow(Ranks& ranks) {
  std::signal(SIGINT, SIG_IGN);  // rank 0 decides what an interrupt means
  Status status = ranks.follow();
  if (status) return 0;
  return exit_code({status.error().code, fmt::format("on rank {}: {}", ranks.rank(), status.error().message)});
}

int speak(int argc, char** argv) {
  Program program;
  program.app.description("Godwit: LLM inference for the longest contexts");
  program.app.set_version_flag("--version", "godwit " GODWIT_VERSION);
  program.app.require_subcommand(1);
  program.app.get_formatter()->column_width(34);
  add_run(program);
  add_chat(program);
  add_tokenize(program);
  add_serve(program);
  add_bench(program);
  add_eval(program);
  add_plan(program);
  add_inspect(program);
  add_quantize(program);
  add_tune(program);
  add_methods(program);
  refuse_empty_values(program.app);
  if (const char* word = unknown_verb(&program.app, argc, argv)) {
    std::fprintf(stderr, "godwit: there is no '%s'; godwit --help lists what there is\n", word);
    return 2;
  }
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.app.exit(error);  // --help, --version
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::fprintf(stderr, "godwit: %s; --help tells more\n", what.c_str());
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error of write, not our end
  try {
    if (Status status = program.run(); !status) return exit_code(status.error());
  } catch (const std::bad_alloc&) {
    return exit_code({ErrorCode::kExhausted, "there is not enough memory for this"});
  } catch (const std::system_error& error) {
    return exit_code(refused_threads(error));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return exit_code({ErrorCode::kIo, "stdout cannot be written"});
  return 0;
}

int main(int argc, char** argv) {
  std::signal(SIGBUS, say_lost_file);
  auto joined = Ranks::join();
  if (!joined) return exit_code(joined.error());
  std::shared_ptr<Ranks>& ranks = job_ranks() = std::move(*joined);
  if (!ranks) return speak(argc, argv);
  const int code = ranks->rank() == 0 ? speak(argc, argv) : follow(*ranks);
  // A job that has lost a rank cannot end in an orderly way; the message is out already.
  if (!ranks->status() || (ranks->rank() > 0 && code != 0)) ranks->abort(code);
  ranks.reset();
  return code;
}

}  // namespace
}  // namespace godwit::cli

int main(int argc, char** argv) {
  return godwit::cli::main(argc, argv);
}
