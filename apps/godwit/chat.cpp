// godwit chat: a conversation on the terminal. Ctrl-C stops the answer and not the program.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include <editline/readline.h>
#include <nlohmann/json.hpp>
#include <sys/time.h>
#include <unistd.h>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

constexpr const char* kHelp =
    "  /file PATH   add a file to your next message\n"
    "  /reset       forget the conversation, and files that no message had yet\n"
    "  /info        model, context and KV memory\n"
    "  /help        this\n"
    "  /exit        leave (also Ctrl-D)\n"
    "  A line that ends in \\ goes on in the next one; so does text between two lines of \"\"\".\n"
    "  Ctrl-C stops an answer.\n";

// "~" and "~/…" are the home folder, as a shell would have it.
std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  const bool wanted = path == "~" || path.rfind("~/", 0) == 0;
  return wanted && home != nullptr ? home + path.substr(1) : path;
}

// While it lives, SIGINT only sets a flag, so that the read it interrupts can be told from the end of the input. A
// signal may come just before that read begins: until it is taken, a timer interrupts again and again.
class PromptInterrupt {
 public:
  PromptInterrupt() {
    seen = false;
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &before_alarm_);
    action.sa_handler = [](int) {
      seen = true;
      interrupt_every(20'000);
    };
    sigaction(SIGINT, &action, &before_);
  }
  ~PromptInterrupt() {
    sigaction(SIGINT, &before_, nullptr);
    interrupt_every(0);
    sigaction(SIGALRM, &before_alarm_, nullptr);
  }
  PromptInterrupt(const PromptInterrupt&) = delete;
  PromptInterrupt& operator=(const PromptInterrupt&) = delete;

  static bool taken() { return seen; }

 private:
  static void interrupt_every(int microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }

  static inline std::atomic<bool> seen = false;  // the handler may run on any thread
  struct sigaction before_ {};
  struct sigaction before_alarm_ {};
};

// Lines from the terminal with editing and history, or plain lines when stdin is no terminal.
class LineReader {
 public:
  LineReader() : terminal_(isatty(STDIN_FILENO) != 0) {
    if (!terminal_) return;
    using_history();
    // A state folder that is set but empty counts as unset, as the XDG specification has it.
    if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0')
      history_ = std::filesystem::path(state) / "godwit" / "history";
    else if (const char* home = std::getenv("HOME"))
      history_ = std::filesystem::path(home) / ".local/state/godwit/history";
    std::error_code error;
    if (!history_.empty()) std::filesystem::create_directories(history_.parent_path(), error);
    if (!history_.empty()) read_history(history_.c_str());
  }
  ~LineReader() = default;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool terminal() const { return terminal_; }

  // A message of one or more lines; Ctrl-C throws away what was typed of it and begins anew.
  std::optional<std::string> message() {
    do {
      abandoned_ = false;
      auto text = typed_message();
      if (!abandoned_) return text;
      std::cerr << "\n";
    } while (true);
  }

 private:
  std::optional<std::string> line(const char* prompt) {
    if (!terminal_) {
      std::string text;
      if (!std::getline(std::cin, text)) return std::nullopt;
      return text;
    }
    PromptInterrupt interrupt;
    char* typed = readline(prompt);
    abandoned_ = typed == nullptr && interrupt.taken();
    if (typed == nullptr) return std::nullopt;
    std::string text(typed);
    if (!text.empty()) {
      add_history(typed);
      if (!history_.empty()) write_history(history_.c_str());
    }
    std::free(typed);
    return text;
  }

  std::optional<std::string> typed_message() {
    auto first = line("> ");
    if (!first) return std::nullopt;
    if (*first == "\"\"\"") return until_quotes();
    std::string text = *first;
    while (!text.empty() && text.back() == '\\') {
      text.back() = '\n';
      auto next = line(". ");
      if (!next) break;
      text += *next;
    }
    return text;
  }

  std::optional<std::string> until_quotes() {
    std::string text;
    for (auto next = line(". "); next && *next != "\"\"\""; next = line(". "))
      text += (text.empty() ? "" : "\n") + *next;
    return text;
  }

  bool terminal_, abandoned_ = false;
  std::filesystem::path history_;
};

struct Chat {
  ModelFlags model;
  GenerateFlags generate;
  std::string system;
  bool stats = false;

  std::vector<ChatMessage> messages;
  std::string attached;  // files for the next message

  void reset() {
    messages.clear();
    attached.clear();
    if (!system.empty()) messages.push_back({"system", system});
  }

  // True when the line was a command.
  bool command(const std::string& line, const Engine& engine, Session& session) {
    if (line.empty() || line[0] != '/') return false;
    if (line == "/help") {
      std::cerr << kHelp;
    } else if (line == "/reset") {
      reset();
      session.truncate(0);
    } else if (line == "/info") {
      const EngineInfo info = engine.info();
      std::cerr << fmt::format("{} ({}) on {}\n{} of {} tokens, {} of {} KV memory\n", info.model, info.family,
                               info.backend, session.tokens().size(), info.context_tokens,
                               bytes_text(session.kv_bytes()), bytes_text(info.kv_budget_bytes));
    } else if (line.rfind("/file ", 0) == 0) {
      auto text = read_input(expand_home(line.substr(6)));
      if (text)
        attached += *text + "\n\n";
      else
        std::cerr << text.error().message << "\n";
    } else if (line.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == std::string::npos) {
      std::cerr << "there is no command " << line << "; /help lists them\n";
    } else {
      return false;  // a message that happens to begin with a slash
    }
    return true;
  }

  // The conversation's tokens that the session has not computed yet are appended; a changed past is forgotten first.
  Status feed(const Engine& engine, Session& session) const {
    GODWIT_ASSIGN(auto wanted, engine.chat_tokens(messages));
    const auto have = session.tokens();
    size_t same = 0;
    while (same < have.size() && same < wanted.size() && have[same] == wanted[same]) ++same;
    session.truncate(same);
    return session.append(std::span(wanted).subspan(same));
  }

  // Whether a message may have the files at all, were it the first one.
  bool files_fit(const Engine& engine) const {
    std::vector<ChatMessage> first = {{"user", attached}};
    if (!system.empty()) first.insert(first.begin(), {"system", system});
    const auto tokens = engine.chat_tokens(first);
    return tokens && tokens->size() < static_cast<size_t>(engine.info().context_tokens);
  }

  Status answer(const Engine& engine, Session& session, const GenerateOptions& options, bool json) {
    GODWIT_TRY(feed(engine, session));
    InterruptScope interrupt(InterruptScope::kIsIgnored);
    ProgressBar bar("read");
    auto on_piece = [&](const Piece& piece) {
      bar.clear();
      if (!json) std::cout << piece.text << std::flush;
      return true;
    };
    auto on_progress = [&](const Progress& p) { bar.show_tokens(p.done, p.total); };
    GODWIT_ASSIGN(Generation result, session.generate(options, on_piece, on_progress, interrupt.token()));
    bar.clear();
    messages.push_back({"assistant", result.text});
    if (json)
      std::cout << json_text(generation_json(engine, session, result)) << std::endl;
    else
      std::cout << std::endl;
    if (!std::cout) return errorf(ErrorCode::kIo, "the answer cannot be written to stdout");
    if (stats) print_stats(engine, session, result);
    note_full_context(engine, result);
    if (Status end = early_end(result); !end) std::cerr << end.error().message << "\n";
    return {};
  }

  Status run(bool json) {
    GODWIT_ASSIGN(GenerateOptions options, generate.read());
    GODWIT_ASSIGN(Engine engine, model.open());
    generate.take_recommended(engine, options.sampling);
    Session session = engine.start();
    reset();
    LineReader reader;
    if (reader.terminal()) std::cerr << "godwit chat: " << engine.info().model << ". /help lists what you can type.\n";
    while (auto line = reader.message()) {
      if (*line == "/exit" || *line == "/quit") break;
      if (line->empty() || command(*line, engine, session)) continue;
      messages.push_back({"user", attached + *line});
      Status status = answer(engine, session, options, json);
      if (status) {
        attached.clear();
        continue;
      }
      messages.pop_back();  // the message that could not be answered
      if (!reader.terminal() || !std::cout) return status;
      std::cerr << status.error().message << "\n";
      if (status.error().code == ErrorCode::kCancelled || !files_fit(engine)) attached.clear();
      if (!attached.empty()) std::cerr << "files stay with your next message; /reset leaves them out\n";
    }
    if (reader.terminal()) std::cerr << "\n";
    return {};
  }
};

}  // namespace

void add_chat(Program& program) {
  auto state = std::make_shared<Chat>();
  CLI::App* verb = add_verb(program, "chat", "Talk with the model");
  verb->add_option("--system", state->system, "System message");
  verb->add_flag("--stats", state->stats, "Print times and KV memory to stderr after each answer");
  state->model.add_to(*verb);
  state->generate.add_to(*verb);
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
