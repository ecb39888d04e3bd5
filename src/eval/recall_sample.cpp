#include "eval/recall_sample.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/result.h"
#include "eval/facts.h"

namespace godwit {
namespace {

using Tokens = std::vector<TokenId>;

void join(Tokens& to, const Tokens& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

Result<RecallSampleMaker> RecallSampleMaker::create(const Engine& engine, Tokens book, const RecallOptions& options) {
  const auto kinds = fact_kinds();
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end())
    return errorf(ErrorCode::kInvalidArgument, "there is no kind of fact '{}'; there are {}", options.kind,
                  fmt::join(kinds, ", "));
  if (options.length < 1 || options.facts < 0 || options.questions < 1 || options.samples < 1)
    return errorf(ErrorCode::kInvalidArgument, "{} samples of {} tokens with {} facts and {} questions make no sense",
                  options.samples, options.length, options.facts, options.questions);
  if (static_cast<size_t>(options.facts) > fact_capacity(options.kind))
    return errorf(ErrorCode::kInvalidArgument, "there are only {} facts of the kind '{}', but {} are asked for",
                  fact_capacity(options.kind), options.kind, options.facts);
  if (static_cast<int64_t>(book.size()) < options.length)
    return errorf(ErrorCode::kInvalidArgument, "the text has {} tokens, but contexts of {} are asked for", book.size(),
                  options.length);
  RecallSampleMaker maker(engine, std::move(book), options);
  GODWIT_ASSIGN(maker.opening_, engine.tokenize("", {.add_bos = true}));
  GODWIT_ASSIGN(const Tokens turn, maker.encode("<|im_start|>user\n", true));
  join(maker.opening_, turn);
  return maker;
}

Result<RecallSample> RecallSampleMaker::make() {
  const auto length = static_cast<size_t>(options_.length);
  const size_t most = std::clamp<size_t>(length / 96, 1, fact_capacity(options_.kind));
  size_t count = static_cast<size_t>(options_.facts);
  if (count == 0) {  // log-uniform: few facts and many are equally frequent
    const double exponent = static_cast<double>(random_() >> 11) * 0x1p-53 * (1 + std::log2(static_cast<double>(most)));
    count = std::clamp<size_t>(static_cast<size_t>(std::exp2(exponent)), 1, most);
  }
  const size_t asked = std::min({count, static_cast<size_t>(options_.questions), std::max<size_t>(1, length / 200)});
  std::set<std::string> used;
  std::vector<Tokens> planted;
  RecallSample sample;
  size_t taken = std::max<size_t>(16, opening_.size());
  for (size_t i = 0; i < count; ++i) {
    const Fact fact = make_fact(options_.kind, random_, used);
    GODWIT_ASSIGN(Tokens sentence, encode(fact.sentence));
    taken += sentence.size();
    planted.push_back(std::move(sentence));
    if (i >= asked) continue;
    GODWIT_ASSIGN(RecallTurn question, ask(fact, i == 0 || options_.question != RecallQuestion::kTurns));
    taken += question.before.size() + question.value.size();
    sample.questions.push_back(std::move(question));
  }
  if (taken + 64 > length)
    return errorf(ErrorCode::kInvalidArgument, "{} facts and {} questions do not fit into {} tokens", count, asked,
                  length);
  sample.context = context(planted, length - taken);
  return sample;
}

Result<Tokens> RecallSampleMaker::encode(std::string_view text, bool special) const {
  return engine_.tokenize(text, {.add_bos = false, .parse_special = special});
}

Result<RecallTurn> RecallSampleMaker::ask(const Fact& fact, bool first) const {
  RecallTurn question;
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

Tokens RecallSampleMaker::context(const std::vector<Tokens>& planted, size_t room) {
  const size_t start = random_() % (book_.size() - std::min(book_.size() - 1, room));
  const std::span<const TokenId> hay = std::span(book_).subspan(start, std::min(room, book_.size() - start));
  std::vector<size_t> stops = {0};  // a fact goes after a sentence
  for (size_t i = 0; i < hay.size(); ++i)
    if (ends_sentence(hay[i])) stops.push_back(i + 1);
  std::vector<std::pair<size_t, const Tokens*>> places;
  for (const Tokens& sentence : planted) places.emplace_back(stops[random_() % stops.size()], &sentence);
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Tokens result = opening_;
  size_t last = 0;
  for (const auto& [at, sentence] : places) {
    result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last), hay.begin() + static_cast<ptrdiff_t>(at));
    join(result, *sentence);
    last = at;
  }
  result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last), hay.end());
  return result;
}

bool RecallSampleMaker::ends_sentence(TokenId id) const {
  const std::string piece = engine_.detokenize({&id, 1});
  return piece == "." || piece == ".\n\n" || piece == "!" || piece == "?" || piece == ".\"" || piece == ".\"\n\n";
}

}  // namespace godwit
