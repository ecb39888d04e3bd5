#include "eval/recall.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "eval/facts.h"

namespace godwit {
namespace {

using Tokens = std::vector<TokenId>;

struct Question {
  Tokens before;  // what comes before the value: the rest of the turn and the answer's lead
  Tokens value;
};

struct Sample {
  Tokens context;  // up to the first question
  std::vector<Question> questions;
};

void join(Tokens& to, const Tokens& more) {
  to.insert(to.end(), more.begin(), more.end());
}

class SampleMaker {
 public:
  SampleMaker(const Engine& engine, Tokens book, const RecallOptions& options)
      : engine_(engine), book_(std::move(book)), options_(options), random_(options.seed) {}

  Result<Sample> make() {
    const auto length = static_cast<size_t>(options_.length);
    const size_t most = std::max<size_t>(1, length / 96);
    size_t count = static_cast<size_t>(options_.facts);
    if (count == 0) {  // log-uniform: few facts and many are equally frequent
      const double exponent =
          static_cast<double>(random_() >> 11) * 0x1p-53 * (1 + std::log2(static_cast<double>(most)));
      count = std::clamp<size_t>(static_cast<size_t>(std::exp2(exponent)), 1, most);
    }
    const size_t asked = std::min({count, static_cast<size_t>(options_.questions), std::max<size_t>(1, length / 200)});
    std::set<std::string> used;
    std::vector<Tokens> planted;
    Sample sample;
    size_t taken = 16;
    for (size_t i = 0; i < count; ++i) {
      const Fact fact = make_fact(options_.kind, random_, used);
      GODWIT_ASSIGN(Tokens sentence, encode(fact.sentence));
      taken += sentence.size();
      planted.push_back(std::move(sentence));
      if (i >= asked) continue;
      GODWIT_ASSIGN(Question question, ask(fact, i == 0));
      taken += question.before.size() + question.value.size();
      sample.questions.push_back(std::move(question));
    }
    if (taken + 64 > length)
      return errorf(ErrorCode::kInvalidArgument, "{} facts and {} questions do not fit into {} tokens", count, asked,
                    length);
    GODWIT_ASSIGN(sample.context, context(planted, length - taken));
    return sample;
  }

 private:
  Result<Tokens> encode(std::string_view text, bool special = false) const {
    return engine_.tokenize(text, {.add_special = false, .parse_special = special});
  }

  // The first question ends the user turn that the text began; later ones are turns of their own.
  Result<Question> ask(const Fact& fact, bool first) const {
    Question question;
    const std::string_view open = first ? "\n\n" : "<|im_end|>\n<|im_start|>user\n";
    for (auto [text, special] : {std::pair<std::string_view, bool>{open, true},
                                 {fact.question, false},
                                 {"<|im_end|>\n<|im_start|>assistant\n", true},
                                 {fact.lead, false}}) {
      GODWIT_ASSIGN(Tokens part, encode(text, special));
      join(question.before, part);
    }
    GODWIT_ASSIGN(question.value, encode(fact.value));
    return question;
  }

  Result<Tokens> context(const std::vector<Tokens>& planted, size_t room) {
    const size_t start = random_() % (book_.size() - std::min(book_.size() - 1, room));
    const std::span<const TokenId> hay = std::span(book_).subspan(start, std::min(room, book_.size() - start));
    std::vector<size_t> stops = {0};  // a fact goes after a sentence
    for (size_t i = 0; i < hay.size(); ++i)
      if (ends_sentence(hay[i])) stops.push_back(i + 1);
    std::vector<std::pair<size_t, const Tokens*>> places;
    for (const Tokens& sentence : planted) places.emplace_back(stops[random_() % stops.size()], &sentence);
    std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    GODWIT_ASSIGN(Tokens result, engine_.tokenize("", {.add_special = true}));
    GODWIT_ASSIGN(Tokens open, encode("<|im_start|>user\n", true));
    join(result, open);
    size_t last = 0;
    for (const auto& [at, sentence] : places) {
      result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last), hay.begin() + static_cast<ptrdiff_t>(at));
      join(result, *sentence);
      last = at;
    }
    result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last), hay.end());
    return result;
  }

  bool ends_sentence(TokenId id) const {
    const std::string piece = engine_.detokenize({&id, 1});
    return piece == "." || piece == ".\n\n" || piece == "!" || piece == "?" || piece == ".\"" || piece == ".\"\n\n";
  }

  const Engine& engine_;
  Tokens book_;
  const RecallOptions& options_;
  std::mt19937_64 random_;
};

}  // namespace

Result<RecallResult> measure_recall(const Engine& engine, std::string_view text, const RecallOptions& options,
                                    std::stop_token stop) {
  const auto kinds = fact_kinds();
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end())
    return errorf(ErrorCode::kInvalidArgument, "there is no kind of fact '{}'; there are {}", options.kind,
                  fmt::join(kinds, ", "));
  GODWIT_ASSIGN(Tokens book, engine.tokenize(text, {.add_special = false}));
  if (static_cast<int64_t>(book.size()) < options.length)
    return errorf(ErrorCode::kInvalidArgument, "the text has {} tokens, but contexts of {} are asked for", book.size(),
                  options.length);
  SampleMaker maker(engine, std::move(book), options);
  RecallResult result;
  for (int i = 0; i < options.samples; ++i) {
    GODWIT_ASSIGN(Sample sample, maker.make());
    Session session = engine.start();
    GODWIT_TRY(session.append(sample.context));
    for (const Question& question : sample.questions) {
      GODWIT_TRY(session.append(question.before));
      GODWIT_ASSIGN(auto scores, session.score(question.value, {}, stop));
      ++result.asked;
      if (std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_top; })) ++result.right;
    }
    if (options.on_progress) options.on_progress(i + 1, options.samples);
  }
  return result;
}

}  // namespace godwit
