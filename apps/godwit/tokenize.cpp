// godwit tokenize: text to token ids and back.
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/builtin_model.h"
#include "engine/vocabulary.h"
#include "options.h"
#include "report.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

struct Tokenize {
  std::string model, file;
  std::optional<std::string> prompt;  // may be empty
  std::vector<TokenId> decode;
  bool count = false, pieces = false, parse_special = false, no_bos = false;

  Status run(bool json) const {
    GODWIT_ASSIGN(ModelSource source, model.empty() ? open_builtin_model() : ModelSource::open(model));
    GODWIT_ASSIGN(Vocabulary vocabulary, load_vocabulary(source, {}));
    const Tokenizer& tokenizer = vocabulary.tokenizer;
    if (prompt && !file.empty()) return errorf(ErrorCode::kInvalidArgument, "give the text by -p or by -f, not both");
    if (!decode.empty()) {
      for (TokenId id : decode)
        if (id < 0 || id >= tokenizer.vocab_size())
          return errorf(ErrorCode::kInvalidArgument, "token {} is not in the vocabulary of {} tokens", id,
                        tokenizer.vocab_size());
      if (json) {
        std::cout << json_text({{"text", tokenizer.decode(decode, true)}}) << "\n";
        return {};
      }
      std::cout << tokenizer.decode(decode, true) << "\n";
      return {};
    }
    std::string text = prompt.value_or("");
    if (!prompt) {
      GODWIT_ASSIGN(text, read_input(file.empty() ? "-" : file));
    }
    GODWIT_ASSIGN(auto ids,
                  tokenizer.encode(text, {.add_bos = !no_bos, .add_eos = !no_bos, .parse_special = parse_special}));
    if (json) {
      nlohmann::json report = {{"count", ids.size()}};
      if (!count) report["tokens"] = ids;
      if (pieces) {
        auto list = nlohmann::json::array();
        for (TokenId id : ids) list.push_back(tokenizer.token_text(id));
        report["pieces"] = std::move(list);
      }
      std::cout << json_text(report) << "\n";
    } else if (count) {
      std::cout << ids.size() << "\n";
    } else if (pieces) {
      for (TokenId id : ids) std::cout << id << "\t" << tokenizer.token_text(id) << "\n";
    } else {
      for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
      std::cout << "\n";
    }
    return {};
  }
};

}  // namespace

void add_tokenize(Program& program) {
  auto state = std::make_shared<Tokenize>();
  CLI::App* verb = add_verb(program, "tokenize", "Turn text into token ids, or ids into text");
  verb->add_option("-m,--model", state->model, "GGUF file or Hugging Face folder (default: the built-in model)")
      ->check(kNotEmpty);
  auto* text = verb->add_option("-p,--prompt", state->prompt, "The text");
  auto* file = verb->add_option("-f,--file", state->file, "Read the text from this file; '-' is stdin (default)");
  auto* count = verb->add_flag("--count", state->count, "Print only how many tokens there are");
  auto* pieces = verb->add_flag("--pieces", state->pieces, "Print each token's text too")->excludes(count);
  auto* special = verb->add_flag("--parse-special", state->parse_special, "Text like <|im_end|> is that special token");
  auto* no_bos = verb->add_flag("--no-bos", state->no_bos, "Do not add BOS or EOS");
  auto* decode = verb->add_option("--decode", state->decode, "Ids to turn into text");
  for (CLI::Option* of_text : {text, file, count, pieces, special, no_bos}) decode->excludes(of_text);
  verb->callback([&program, state] { program.run = [&program, state] { return state->run(program.json); }; });
}

}  // namespace godwit::cli
