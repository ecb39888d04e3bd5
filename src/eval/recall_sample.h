// The texts that recall is measured on: a slice of a book with facts planted after its sentences, then questions. The
// same seed gives the same samples on every machine. Engine and options must outlive the maker.
#pragma once

#include <random>
#include <vector>

#include "eval/recall.h"

namespace godwit {

struct Fact;

struct RecallTurn {
  std::string kind;
  size_t begin = 0, tokens = 0;  // the fact's first sentence in the context
  double depth = 0;              // where it begins, as a share of the context
  std::vector<TokenId> before;   // what comes before the value: the rest of the turn and the answer's lead
  std::vector<TokenId> value;
};

struct RecallSample {
  std::vector<TokenId> context;       // up to the first question
  std::vector<TokenId> continuation;  // how the book goes on: what full attention would have to predict
  std::vector<RecallTurn> questions;
};

// Tokens after a context that predictions are compared on, at most.
inline constexpr size_t kContinuationTokens = 128;

class RecallSampleMaker {
 public:
  // kInvalidArgument where the options make no sense or the book is shorter than a sample.
  static Result<RecallSampleMaker> create(const Engine& engine, std::vector<TokenId> book,
                                          const RecallOptions& options);

  // The next sample: at most RecallOptions::length tokens, questions and answers included.
  Result<RecallSample> make();

  static std::vector<std::string_view> kinds();

 private:
  RecallSampleMaker(const Engine& engine, std::vector<TokenId> book, const RecallOptions& options)
      : engine_(engine), book_(std::move(book)), options_(options), random_(options.seed) {}

  Result<std::vector<TokenId>> encode(std::string_view text, bool special = false) const;
  // The first question ends the user turn that the text began; later ones of a chat are turns of their own.
  Result<RecallTurn> ask(const Fact& fact, bool first) const;
  Result<RecallSample> make_shots();
  struct Planted {
    std::vector<std::vector<TokenId>> sentences;
    size_t begin = 0;  // of the first one in the context, once that is made
  };
  void lay_out(std::vector<Planted>& facts, size_t room, RecallSample& sample);
  bool ends_sentence(TokenId id) const;

  const Engine& engine_;
  std::vector<TokenId> book_, opening_;
  const RecallOptions& options_;
  std::mt19937_64 random_;
};

}  // namespace godwit
