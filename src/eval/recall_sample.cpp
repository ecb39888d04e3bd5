#include "eval/recall_sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/result.h"
#include "eval/facts.h"

namespace godwit {
namespace {

using Tokens = std::vector<TokenId>;

void join(Tokens& to, const Tokens& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Facts that kinds which take turns can give.
size_t capacity_of(std::span<const std::string> kinds) {
  size_t least = SIZE_MAX;
  for (const std::string& kind : kinds) least = std::min(least, kind == "shots" ? 1000 : fact_capacity(kind));
  return least;
}

// A word that no book holds: "brimosa".
std::string pseudo_word(std::mt19937_64& random) {
  constexpr std::string_view kOnsets[] = {"b", "br", "d", "f", "g", "k", "kl", "l",
                                          "m", "n",  "p", "r", "s", "t", "v",  "z"};
  constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u"};
  std::string word;
  for (int i = 0; i < 3; ++i) {
    word += kOnsets[random() % std::size(kOnsets)];
    word += kVowels[random() % std::size(kVowels)];
  }
  return word;
}

}  // namespace

std::vector<std::string_view> RecallSampleMaker::kinds() {
  std::vector<std::string_view> all(fact_kinds().begin(), fact_kinds().end());
  all.emplace_back("shots");
  return all;
}

Result<RecallSampleMaker> RecallSampleMaker::create(const Engine& engine, Tokens book, const RecallOptions& options) {
  const auto known = kinds();
  for (const std::string& kind : options.kinds) {
    if (std::find(known.begin(), known.end(), kind) == known.end())
      return errorf(ErrorCode::kInvalidArgument, "there is no kind of fact '{}'; there are {}", kind,
                    fmt::join(known, ", "));
    if (kind == "shots" && options.kinds.size() > 1)
      return errorf(ErrorCode::kInvalidArgument, "shots fill a text of their own and cannot be mixed with other kinds");
  }
  if (options.kinds.empty()) return errorf(ErrorCode::kInvalidArgument, "there is no kind of fact to plant");
  if (options.length < 1 || options.facts < 0 || options.questions < 1 || options.samples < 1)
    return errorf(ErrorCode::kInvalidArgument, "{} samples of {} tokens with {} facts and {} questions make no sense",
                  options.samples, options.length, options.facts, options.questions);
  const size_t capacity = capacity_of(options.kinds);
  if (static_cast<size_t>(options.facts) > capacity)
    return errorf(ErrorCode::kInvalidArgument, "there are only {} facts of the kind '{}', but {} are asked for",
                  capacity, fmt::join(options.kinds, ", "), options.facts);
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
  if (options_.kinds[0] == "shots") return make_shots();
  const auto length = static_cast<size_t>(options_.length);
  const size_t most = std::clamp<size_t>(length / 96, 1, capacity_of(options_.kinds));
  size_t count = static_cast<size_t>(options_.facts);
  if (count == 0) {  // log-uniform: few facts and many are equally frequent
    const double exponent = static_cast<double>(random_() >> 11) * 0x1p-53 * (1 + std::log2(static_cast<double>(most)));
    count = std::clamp<size_t>(static_cast<size_t>(std::exp2(exponent)), 1, most);
  }
  const size_t asked = std::min({count, static_cast<size_t>(options_.questions), std::max<size_t>(1, length / 200)});
  std::map<std::string, std::set<std::string>> used;
  std::vector<Planted> planted(count);
  RecallSample sample;
  size_t taken = std::max<size_t>(16, opening_.size());
  for (size_t i = 0; i < count; ++i) {
    const std::string& kind = options_.kinds[i % options_.kinds.size()];
    const Fact fact = make_fact(kind, random_, used[kind]);
    for (const std::string& text : fact.sentences) {
      GODWIT_ASSIGN(Tokens sentence, encode(text));
      taken += sentence.size();
      planted[i].sentences.push_back(std::move(sentence));
    }
    if (i >= asked) continue;
    GODWIT_ASSIGN(RecallTurn question, ask(fact, i == 0 || options_.question != RecallQuestion::kTurns));
    question.kind = kind;
    taken += question.before.size() + question.value.size();
    sample.questions.push_back(std::move(question));
  }
  if (taken + 64 > length)
    return errorf(ErrorCode::kInvalidArgument, "{} facts and {} questions do not fit into {} tokens", count, asked,
                  length);
  lay_out(planted, length - taken, sample);
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    RecallTurn& question = sample.questions[i];
    question.begin = planted[i].begin;
    question.tokens = planted[i].sentences[0].size();
    question.depth = static_cast<double>(question.begin) / static_cast<double>(sample.context.size());
  }
  return sample;
}

Result<RecallSample> RecallSampleMaker::make_shots() {
  const auto length = static_cast<size_t>(options_.length);
  // Each pair is seen some twelve times.
  const size_t count =
      options_.facts > 0 ? static_cast<size_t>(options_.facts) : std::clamp<size_t>(length / 128, 2, 64);
  std::map<std::string, std::string> labels;
  while (labels.size() < count) {
    std::string word = pseudo_word(random_);
    labels.emplace(std::move(word), pseudo_word(random_));
  }
  std::vector<RecallTurn> shots;
  for (const auto& [word, label] : labels) {
    RecallTurn& shot = shots.emplace_back();
    shot.kind = "shots";
    GODWIT_ASSIGN(shot.before, encode(word + " ->"));
    GODWIT_ASSIGN(shot.value, encode(" " + label));
  }
  GODWIT_ASSIGN(const Tokens newline, encode("\n"));
  RecallSample sample;
  size_t room = length;
  for (size_t i = 0; i < std::min(count, static_cast<size_t>(options_.questions)); ++i) {
    const size_t tokens = shots[i].before.size() + shots[i].value.size();
    if (tokens + 64 * count > room)
      return errorf(ErrorCode::kInvalidArgument, "{} pairs of words do not fit into {} tokens", count, length);
    room -= tokens;
    sample.questions.push_back(shots[i]);
  }
  GODWIT_ASSIGN(sample.context, engine_.tokenize("", {.add_bos = true}));
  for (size_t i = 0;; ++i) {
    const RecallTurn& shot = shots[i < count ? i : random_() % count];
    if (sample.context.size() + shot.before.size() + shot.value.size() + newline.size() > room) return sample;
    if (i < sample.questions.size())
      sample.questions[i].depth = static_cast<double>(sample.context.size()) / static_cast<double>(room);
    join(sample.context, shot.before);
    join(sample.context, shot.value);
    join(sample.context, newline);
  }
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

void RecallSampleMaker::lay_out(std::vector<Planted>& facts, size_t room, RecallSample& sample) {
  const size_t start = random_() % (book_.size() - std::min(book_.size() - 1, room));
  const std::span<const TokenId> hay = std::span(book_).subspan(start, std::min(room, book_.size() - start));
  std::vector<size_t> stops = {0};  // a sentence goes after a sentence
  for (size_t i = 0; i < hay.size(); ++i)
    if (ends_sentence(hay[i])) stops.push_back(i + 1);
  struct Place {
    size_t at;
    Planted* fact;
    size_t sentence;
  };
  std::vector<Place> places;
  for (Planted& fact : facts) {
    std::vector<size_t> at;
    for (size_t i = 0; i < fact.sentences.size(); ++i) at.push_back(stops[random_() % stops.size()]);
    std::sort(at.begin(), at.end());
    for (size_t i = 0; i < at.size(); ++i) places.push_back({at[i], &fact, i});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.at < b.at; });
  Tokens& result = sample.context = opening_;
  size_t last = 0;
  for (const Place& place : places) {
    result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last),
                  hay.begin() + static_cast<ptrdiff_t>(place.at));
    if (place.sentence == 0) place.fact->begin = result.size();
    join(result, place.fact->sentences[place.sentence]);
    last = place.at;
  }
  result.insert(result.end(), hay.begin() + static_cast<ptrdiff_t>(last), hay.end());
  const auto rest = std::span(book_).subspan(start + hay.size());
  const auto next = rest.first(std::min(rest.size(), kContinuationTokens));
  sample.continuation.assign(next.begin(), next.end());
}

bool RecallSampleMaker::ends_sentence(TokenId id) const {
  const std::string piece = engine_.detokenize({&id, 1});
  return piece == "." || piece == ".\n\n" || piece == "!" || piece == "?" || piece == ".\"" || piece == ".\"\n\n";
}

}  // namespace godwit
