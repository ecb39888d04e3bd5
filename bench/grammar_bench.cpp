// What it costs to hold an answer to a grammar: the mask of the next tokens and the step to the chosen one, with a
// vocabulary of 128K tokens. `first` is a new constraint for every answer, `warm` one that was used before. Times are
// the thread's own, so that a busy machine does not count.
#include <algorithm>
#include <ctime>
#include <random>
#include <set>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "text/byte_map.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"

namespace godwit {
namespace {

constexpr size_t kTokens = 128'000;

// Bytes, runs of punctuation as JSON and code have them, and words with and without a space before them.
std::shared_ptr<const TokenTrie> large_vocabulary() {
  static const std::shared_ptr<const TokenTrie> trie = [] {
    std::mt19937 random(1);
    std::set<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.insert(std::string(1, static_cast<char>(byte)));
    tokens.insert("in");
    const std::string marks = "\"\"{}[]:,., ()'\n \\;=-_<>/";
    while (tokens.size() < 6000) {
      std::string run;
      for (size_t n = 2 + random() % 3; n > 0; --n) run += marks[random() % marks.size()];
      tokens.insert(run);
    }
    const char* syllables[] = {"a",   "e",  "in", "on", "er", "st", "th", "co", "de", "re", "al", "ing", "ma", "li",
                               "pro", "ti", "ve", "un", "ch", "or", "am", "ly", "ex", "é",  "ü",  "中",  "文", "ли"};
    while (tokens.size() < kTokens) {
      std::string word = random() % 2 == 0 ? " " : "";
      for (size_t n = 1 + random() % 5; n > 0; --n) word += syllables[random() % std::size(syllables)];
      if (random() % 40 == 0) word += "\"";
      tokens.insert(word);
    }
    GgufVocab vocab;
    vocab.model = "gpt2";
    vocab.pre = "default";
    for (const std::string& token : tokens) vocab.tokens.push_back(bytes_to_chars(token));
    vocab.merges = {"i n"};  // one must be there; nothing is encoded here
    auto tokenizer = Tokenizer::from_gguf(std::move(vocab), "bench");
    GODWIT_CHECK(tokenizer.has_value(), "{}", tokenizer.error().message);
    auto made = TokenTrie::make(*tokenizer, tokenizer->vocab_size(), {});
    GODWIT_CHECK(made.has_value(), "{}", made.error().message);
    return std::make_shared<const TokenTrie>(std::move(*made));
  }();
  return trie;
}

constexpr const char* kAnyObject = R"({"type":"object"})";
constexpr const char* kRecord =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
        "mail":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["red","green","blue"]}},
        "notes":{"type":"array","items":{"type":"object","properties":{"at":{"type":"string","format":"date"},
        "text":{"type":"string","maxLength":200}},"required":["at","text"],"additionalProperties":false}}},
        "required":["name","age","mail","tags","notes"],"additionalProperties":false})";
constexpr const char* kTree =
    R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"label":{"type":"string"},"kids":{"type":"array",
        "items":{"$ref":"#/$defs/t"}}},"required":["label","kids"]}}})";

double cpu_micros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void mask(benchmark::State& bench, const char* schema, bool warm) {
  const auto trie = large_vocabulary();
  std::mt19937 random(2);
  TokenMask allowed;
  std::vector<TokenId> tokens;
  std::vector<double> micros;
  std::shared_ptr<const Constraint> constraint;
  // One answer, chosen at random with a liking for what closes; times go to `micros`.
  const auto answer = [&] {
    if (!constraint || !warm) {
      auto grammar = json_schema_grammar(schema);
      GODWIT_CHECK(grammar.has_value(), "{}", grammar.error().message);
      constraint = std::make_shared<Constraint>(std::move(*grammar), trie);
    }
    auto state = ConstraintState::start(constraint);
    for (int i = 0; i < 200 && !state->must_end(); ++i) {
      const double begin = cpu_micros();
      GODWIT_CHECK(state->allowed(allowed).has_value());
      double time = cpu_micros() - begin;
      tokens.clear();
      std::vector<TokenId> closing;
      for (TokenId id = 0; id < trie->vocab_size(); ++id) {
        if ((allowed[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) continue;
        tokens.push_back(id);
        if (trie->bytes(id).find_first_of("\"}]") != std::string::npos) closing.push_back(id);
      }
      const auto& from = closing.empty() || random() % 4 != 0 ? tokens : closing;
      const TokenId chosen = from[random() % from.size()];
      const double step = cpu_micros();
      GODWIT_CHECK(*state->advance(chosen));
      time += cpu_micros() - step;
      micros.push_back(time);
    }
  };
  if (warm)
    for (int i = 0; i < 40; ++i) answer();
  micros.clear();
  for (auto _ : bench) {
    const size_t before = micros.size();
    answer();
    double sum = 0;
    for (size_t i = before; i < micros.size(); ++i) sum += micros[i];
    bench.SetIterationTime(sum / 1e6);
  }
  double sum = 0;
  for (const double value : micros) sum += value;
  std::sort(micros.begin(), micros.end());
  bench.counters["us_per_token"] = sum / static_cast<double>(micros.size());
  bench.counters["us_median"] = micros[micros.size() / 2];
  bench.counters["us_p99"] = micros[micros.size() * 99 / 100];
  bench.counters["us_worst"] = micros.back();
}
BENCHMARK_CAPTURE(mask, any_object_warm, kAnyObject, true)->UseManualTime()->Iterations(60);
BENCHMARK_CAPTURE(mask, any_object_first, kAnyObject, false)->UseManualTime()->Iterations(10);
BENCHMARK_CAPTURE(mask, record_warm, kRecord, true)->UseManualTime()->Iterations(60);
BENCHMARK_CAPTURE(mask, record_first, kRecord, false)->UseManualTime()->Iterations(10);
BENCHMARK_CAPTURE(mask, tree_warm, kTree, true)->UseManualTime()->Iterations(60);
BENCHMARK_CAPTURE(mask, tree_first, kTree, false)->UseManualTime()->Iterations(10);

void compile(benchmark::State& bench, const char* schema) {
  for (auto _ : bench) benchmark::DoNotOptimize(json_schema_grammar(schema));
}
BENCHMARK_CAPTURE(compile, any_object, kAnyObject)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, record, kRecord)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace godwit
