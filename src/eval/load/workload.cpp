#include "eval/load/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"

namespace godwit::load {
namespace {

constexpr int kMostTokens = 1 << 24;
constexpr size_t kMostLines = 1'000'000;

// Words that nearly every vocabulary has whole.
constexpr std::array kWords = {
    "time",   "year",  "people", "way",   "day",   "man",  "thing",  "woman", "life",  "child",  "world",
    "school", "state", "family", "group", "hand",  "part", "place",  "case",  "week",  "work",   "fact",
    "night",  "point", "home",   "water", "room",  "area", "money",  "story", "month", "right",  "study",
    "book",   "eye",   "job",    "word",  "side",  "kind", "head",   "house", "page",  "friend", "father",
    "power",  "hour",  "game",   "line",  "end",   "law",  "car",    "city",  "name",  "team",   "minute",
    "idea",   "body",  "back",   "face",  "level", "door", "health", "art",   "war"};

uint64_t mixed(uint64_t a, uint64_t b) {  // SplitMix64's last steps: seeds that differ little give streams that do not
  uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325U;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

// "a,b,c" as that many numbers.
std::optional<std::vector<double>> numbers(std::string_view text, size_t count) {
  std::vector<double> values;
  while (values.size() < count) {
    const size_t end = std::min(text.find(','), text.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || !std::isfinite(value)) return std::nullopt;
    values.push_back(value);
    if (values.size() == count) return end == text.size() ? std::optional(values) : std::nullopt;
    if (end == text.size()) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  return std::nullopt;
}

bool is_length(double x) {
  return x >= 1 && x <= kMostTokens && x == std::floor(x);
}

}  // namespace

double Draw::unit() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}
double Draw::exponential(double rate) {
  return -std::log1p(-unit()) / rate;
}
double Draw::normal() {  // Box and Muller's
  const double radius = std::sqrt(-2 * std::log1p(-unit()));
  return radius * std::cos(6.283185307179586 * unit());
}
uint64_t Draw::below(uint64_t count) {
  return std::min(static_cast<uint64_t>(unit() * static_cast<double>(count)), count - 1);
}

Result<Lengths> Lengths::parse(std::string_view text) {
  constexpr std::string_view kUniformName = "uniform:", kLognormalName = "lognormal:";
  Lengths lengths;
  if (text.starts_with(kUniformName)) {
    const auto ends = numbers(text.substr(kUniformName.size()), 2);
    if (ends && is_length((*ends)[0]) && is_length((*ends)[1]) && (*ends)[0] <= (*ends)[1]) {
      lengths.low_ = (*ends)[0], lengths.high_ = (*ends)[1];
      return lengths;
    }
  } else if (text.starts_with(kLognormalName)) {
    const auto shape = numbers(text.substr(kLognormalName.size()), 3);
    if (shape && is_length((*shape)[0]) && (*shape)[1] >= 0 && (*shape)[1] <= 10 && is_length((*shape)[2])) {
      lengths.kind_ = Kind::kLognormal;
      lengths.median_ = (*shape)[0], lengths.sigma_ = (*shape)[1], lengths.high_ = (*shape)[2];
      return lengths;
    }
  } else if (const auto fixed = numbers(text, 1); fixed && is_length((*fixed)[0])) {
    lengths.low_ = lengths.high_ = (*fixed)[0];
    return lengths;
  }
  return errorf(ErrorCode::kInvalidArgument,
                "'{}' is no length in tokens; give a number from 1 to {}, uniform:LEAST,MOST or "
                "lognormal:MEDIAN,SIGMA,MOST",
                text, kMostTokens);
}

int Lengths::draw(Draw& from) const {
  if (kind_ == Kind::kUniform)
    return static_cast<int>(low_) + static_cast<int>(from.below(static_cast<uint64_t>(high_ - low_) + 1));
  return static_cast<int>(std::clamp(std::round(median_ * std::exp(sigma_ * from.normal())), low_, high_));
}

Workload::Workload(const WorkloadOptions& options) : options_(options), draw_(options.seed) {}

int64_t Workload::size() const {
  return from_trace_ ? static_cast<int64_t>(trace_.size()) : options_.requests;
}

std::optional<Request> Workload::next() {
  if (given_ >= size()) return std::nullopt;
  ++given_;
  if (from_trace_) return trace_[static_cast<size_t>(given_ - 1)];
  Request request;
  if (options_.rate > 0) now_ += draw_.exponential(options_.rate);
  request.arrival_seconds = now_;
  request.prompt_tokens = options_.prompt.draw(draw_);
  request.output_tokens = options_.output.draw(draw_);
  if (options_.prefixes > 0) {
    request.prefix = draw_.below(static_cast<uint64_t>(options_.prefixes));
    request.prefix_tokens = options_.prefix_tokens;
    request.prompt_tokens += options_.prefix_tokens;
  }
  return request;
}

Result<std::vector<Request>> parse_trace(std::string_view text, const std::string& label) {
  std::vector<Request> trace;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", label, number);
    if (trace.size() == kMostLines)
      return errorf(ErrorCode::kExhausted, "{}: a trace has at most {} requests; cut it", where, kMostLines);
    GODWIT_ASSIGN(const nlohmann::json json,
                  parse_json(line, where, {.max_bytes = 64 << 10, .max_values = 4096, .max_depth = 8}));
    GODWIT_ASSIGN(const JsonObject object, JsonObject::of(json, where));
    Request request;
    auto tokens = [&](const char* key, int least) -> Result<int> {
      GODWIT_ASSIGN(const int64_t value, object.get<int64_t>(key));
      if (value < least || value > kMostTokens)
        return errorf(ErrorCode::kBadData, "{}: '{}' is {}; it must be {} to {}", where, key, value, least,
                      kMostTokens);
      return static_cast<int>(value);
    };
    GODWIT_ASSIGN(request.arrival_seconds, object.get<double>("arrival"));
    const double before = trace.empty() ? 0 : trace.back().arrival_seconds;
    if (!(request.arrival_seconds >= before) || request.arrival_seconds > 1e7)
      return errorf(ErrorCode::kBadData, "{}: 'arrival' is {}; it counts seconds from 0 and never falls (before: {})",
                    where, request.arrival_seconds, before);
    GODWIT_ASSIGN(request.prompt_tokens, tokens("prompt_tokens", 1));
    GODWIT_ASSIGN(request.output_tokens, tokens("output_tokens", 1));
    if (object.has("prefix")) {
      const nlohmann::json& id = json["prefix"];
      if (!id.is_string() && !id.is_number_integer())
        return errorf(ErrorCode::kBadData, "{}: 'prefix' must be a number or a text", where);
      request.prefix = hash_of(id.is_string() ? id.get_ref<const std::string&>() : id.dump());
      GODWIT_ASSIGN(request.prefix_tokens, tokens("prefix_tokens", 0));
      if (request.prefix_tokens > request.prompt_tokens)
        return errorf(ErrorCode::kBadData, "{}: 'prefix_tokens' is {}, more than the whole prompt's {}", where,
                      request.prefix_tokens, request.prompt_tokens);
    }
    trace.push_back(request);
  }
  if (trace.empty()) return errorf(ErrorCode::kBadData, "{}: there is no request in it", label);
  return trace;
}

std::string PromptMaker::words(uint64_t seed, int64_t count) {
  Draw draw(seed);
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[draw.below(kWords.size())];
  }
  return text;
}

std::string PromptMaker::make(const Request& request, uint64_t index) const {
  const int64_t shared = std::llround(request.prefix_tokens / tokens_per_word);
  const int64_t all = std::llround((request.prompt_tokens - tokens_around) / tokens_per_word);
  return words(mixed(mixed(seed, 1), request.prefix), shared) +
         words(mixed(mixed(seed, 2), index), std::max<int64_t>(all - shared, 1));
}

}  // namespace godwit::load
