// Recall: facts are planted in a slice of a text, questions about some of them follow, and an answer counts as right
// when every token of its value is the most likely one given all before it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/engine.h>

namespace godwit {

enum class RecallQuestion {
  kTurns,  // questions follow one another as turns of a chat
  kKnown,  // each is the end of a prompt of its own: a KV policy may look at it before it drops anything
  kLate,   // each comes after the whole text was read and its cache compressed; all see the same cache
};

struct RecallOptions {
  // Of facts.h, which take turns in a text; or "shots" alone: a list of words and their labels is the text, and a word
  // must be followed by its label again.
  std::vector<std::string> kinds = {"number"};
  int length = 8192;   // tokens in all
  int samples = 8;     // texts
  int facts = 0;       // planted in each text; 0: a random number up to one in 96 tokens
  int questions = 24;  // asked at most in each text
  RecallQuestion question = RecallQuestion::kTurns;
  uint64_t seed = 1;
  std::function<void(int done, int total)> on_progress;  // texts
};

struct RecallResult {
  int asked = 0, right = 0;
  double kv_bytes_per_token = 0;  // resident when a question is answered, mean over questions
  double share() const { return asked > 0 ? static_cast<double>(right) / asked : 0; }
};

Result<RecallResult> measure_recall(const Engine& engine, std::string_view text, const RecallOptions& options,
                                    std::stop_token stop = {});

}  // namespace godwit
