#include "text/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/result.h"

namespace godwit {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr int kMaxLogprobs = 1024;
constexpr size_t kHeapLimit = 512;  // up to this k a heap over one pass beats partitioning the whole vocabulary

// exp(x) for x <= 0 from IEEE additions and multiplications alone. The C library's differs between platforms in the
// last bit, which would one day turn the same seed into another token. Without branches, so that loops vectorize; what
// is below -700 comes out as some 1e-304, nothing next to the best token's 1.
inline double portable_exp(double x) {
  constexpr double kLog2e = 1.4426950408889634074, kLn2High = 6.93147180369123816490e-01,
                   kLn2Low = 1.90821492927058770002e-10;
  constexpr double kShifter = 0x1.8p52;  // adding it rounds to an integer, which then sits in the low bits
  x = x > -700.0 ? x : -700.0;
  double shifted = x * kLog2e + kShifter;
  double k = shifted - kShifter;
  double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2)/2
  // Taylor series; 1/13! * r^13 is below the last bit.
  constexpr double kInverseFactorials[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  double sum = 1.0 / 6227020800;
  for (double coefficient : kInverseFactorials) sum = sum * r + coefficient;
  return sum * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);  // times 2^k
}

// In lanes of their own, which the compiler can vectorize; the order of comparisons does not matter to a maximum.
float max_of(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; lane++) {
      lanes[lane] = lanes[lane] < values[i + lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (; i < values.size(); i++) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

// The largest number, and where it comes first.
struct Best {
  float value = -kInfinity;
  size_t at = 0;
  bool sound = true;  // neither NaN nor infinity among them
};

// Block by block, so that all looks at a number after the first one find it in the first cache.
Best best_of(std::span<const float> values) {
  constexpr size_t kBlock = 1024;
  Best best;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    int unsound = 0;
    for (float value : block) unsound |= !(value < kInfinity);  // true for NaN too
    if (unsound != 0) best.sound = false;
    if (const float top = max_of(block); top > best.value) {
      best.value = top;
      best.at = begin + static_cast<size_t>(std::find(block.begin(), block.end(), top) - block.begin());
    }
  }
  return best;
}

double sum_of_exp(std::span<const float> values, double offset) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {}, total = 0;
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; lane++) lanes[lane] += portable_exp(values[i + lane] - offset);
  }
  for (; i < values.size(); i++) total += portable_exp(values[i] - offset);
  for (double lane : lanes) total += lane;
  return total;
}

Status check_range(std::string_view name, float value, float low, float high) {
  if (std::isnan(value) || value < low || value > high) {
    return errorf(ErrorCode::kInvalidArgument, "{} is {}; it must be between {} and {}", name, value, low, high);
  }
  return {};
}

Status check_token(std::string_view name, TokenId id, int vocab_size) {
  if (id < 0 || id >= vocab_size) {
    return errorf(ErrorCode::kInvalidArgument, "{} names token {}; the vocabulary has {} tokens", name, id, vocab_size);
  }
  return {};
}

}  // namespace

Status validate(const SamplingOptions& o, int vocab_size) {
  if (vocab_size < 1) return errorf(ErrorCode::kInvalidArgument, "the vocabulary is empty");
  GODWIT_TRY(check_range("temperature", o.temperature, 0.0f, 100.0f));
  GODWIT_TRY(check_range("top_p", o.top_p, 0.0f, 1.0f));
  GODWIT_TRY(check_range("min_p", o.min_p, 0.0f, 1.0f));
  GODWIT_TRY(check_range("repetition_penalty", o.repetition_penalty, 0.01f, 100.0f));
  GODWIT_TRY(check_range("presence_penalty", o.presence_penalty, -100.0f, 100.0f));
  GODWIT_TRY(check_range("frequency_penalty", o.frequency_penalty, -100.0f, 100.0f));
  if (o.top_k < 0) return errorf(ErrorCode::kInvalidArgument, "top_k is {}; 0 keeps all tokens", o.top_k);
  if (o.penalty_window < -1) {
    return errorf(ErrorCode::kInvalidArgument, "penalty_window is {}; -1 is the whole history", o.penalty_window);
  }
  if (o.logprobs < -1 || o.logprobs > kMaxLogprobs) {
    return errorf(ErrorCode::kInvalidArgument, "logprobs is {}; it must be between -1 (none) and {}", o.logprobs,
                  kMaxLogprobs);
  }
  if (o.min_tokens < 0) return errorf(ErrorCode::kInvalidArgument, "min_tokens is {}, below 0", o.min_tokens);
  for (const auto& [id, bias] : o.logit_bias) {
    GODWIT_TRY(check_token("logit_bias", id, vocab_size));
    if (std::isnan(bias) || bias == kInfinity) {
      return errorf(ErrorCode::kInvalidArgument, "logit_bias of token {} is {}", id, bias);
    }
  }
  for (TokenId id : o.end_tokens) GODWIT_TRY(check_token("end_tokens", id, vocab_size));
  return {};
}

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    word = z ^ z >> 31;
  }
}

uint64_t Random::next() {
  auto rotate = [](uint64_t x, int by) { return x << by | x >> (64 - by); };
  uint64_t result = rotate(state_[1] * 5, 7) * 9;
  uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate(state_[3], 45);
  return result;
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

Sampler::Sampler(SamplingOptions options, int vocab_size)
    : options_(std::move(options)), vocab_size_(vocab_size), random_(options_.seed) {
  Status status = validate(options_, vocab_size);
  GODWIT_CHECK(status.has_value(), "{}", status.error().message);
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history) {
  GODWIT_CHECK(logits.size() == static_cast<size_t>(vocab_size_), "{} logits for a vocabulary of {}", logits.size(),
               vocab_size_);
  Best best = best_of(logits);
  if (!best.sound) {
    return errorf(ErrorCode::kBadData, "the model gave logits that are not finite; its weights may be damaged");
  }
  std::span<const float> chosen_from = logits;
  if (penalizes() || !options_.logit_bias.empty() || sampled_ < options_.min_tokens) {
    adjust(logits, history);
    chosen_from = adjusted_;
    best = best_of(chosen_from);
  }
  if (best.value == -kInfinity) {
    return errorf(ErrorCode::kInvalidArgument, "no token is left to choose: all are banned");
  }
  SampledToken token;
  token.id = options_.temperature == 0.0f ? static_cast<TokenId>(best.at) : draw(chosen_from, best.value);
  sampled_++;
  if (options_.logprobs >= 0) report(logits, token);
  return token;
}

bool Sampler::better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

bool Sampler::penalizes() const {
  const SamplingOptions& o = options_;
  const bool idle = o.repetition_penalty == 1.0f && o.presence_penalty == 0.0f && o.frequency_penalty == 0.0f;
  return !idle && o.penalty_window != 0;
}

void Sampler::adjust(std::span<const float> logits, std::span<const TokenId> history) {
  adjusted_.assign(logits.begin(), logits.end());
  if (penalizes()) penalize(history);
  for (const auto& [id, bias] : options_.logit_bias) {
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = std::min(logit + bias, kMaxFloat);
  }
  if (sampled_ < options_.min_tokens) {
    for (TokenId id : options_.end_tokens) adjusted_[static_cast<size_t>(id)] = -kInfinity;
  }
}

void Sampler::penalize(std::span<const TokenId> history) {
  const SamplingOptions& o = options_;
  counts_.resize(static_cast<size_t>(vocab_size_));
  if (o.penalty_window > 0 && history.size() > static_cast<size_t>(o.penalty_window)) {
    history = history.last(static_cast<size_t>(o.penalty_window));
  }
  for (TokenId id : history) {
    GODWIT_CHECK(id >= 0 && id < vocab_size_, "token {} in a vocabulary of {}", id, vocab_size_);
    counts_[static_cast<size_t>(id)]++;
  }
  for (TokenId id : history) {
    int count = std::exchange(counts_[static_cast<size_t>(id)], 0);
    if (count == 0) continue;
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / o.repetition_penalty : logit * o.repetition_penalty;
    logit = std::min(logit - (o.presence_penalty + o.frequency_penalty * static_cast<float>(count)), kMaxFloat);
  }
}

// Leaves in candidates_ the k best, unordered; all that are not banned if top_k asks for no limit.
void Sampler::keep_top_k(std::span<const float> logits) {
  candidates_.clear();
  size_t k = options_.top_k == 0 ? logits.size() : static_cast<size_t>(options_.top_k);
  bool by_heap = k <= kHeapLimit;
  for (TokenId id = 0; id < vocab_size_; id++) {
    Candidate candidate{logits[static_cast<size_t>(id)], id, 0.0};
    if (candidate.logit == -kInfinity) continue;
    if (!by_heap || candidates_.size() < k) {
      candidates_.push_back(candidate);
      if (by_heap && candidates_.size() == k) std::make_heap(candidates_.begin(), candidates_.end(), better);
    } else if (better(candidate, candidates_.front())) {  // the front is the worst of the k
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  if (k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k), candidates_.end(), better);
  candidates_.resize(k);
}

// Leaves the smallest set that holds top_p of the mass, and of that what min_p allows, best first.
void Sampler::keep_top_p_and_min_p() {
  double total = 0, top_p = options_.top_p;
  for (const Candidate& c : candidates_) total += c.weight;
  // Tokens below this weight cannot sum to the mass that may be left out, so none of them is needed; what remains to be
  // sorted is short. The best token's weight is 1.
  double floor = std::max<double>((1.0 - top_p) * total / static_cast<double>(candidates_.size()), options_.min_p);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < floor && c.weight < 1.0; });
  std::sort(candidates_.begin(), candidates_.end(), better);
  double mass = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || top_p >= 1.0 || mass < top_p * total)) {
    mass += candidates_[kept++].weight;
  }
  candidates_.resize(kept);
}

TokenId Sampler::draw(std::span<const float> logits, float best) {
  keep_top_k(logits);
  // Relative to the best token and in double, so that small temperatures cannot overflow.
  for (Candidate& c : candidates_) {
    c.weight = portable_exp((static_cast<double>(c.logit) - best) / options_.temperature);
  }
  if (options_.top_p < 1.0f || options_.min_p > 0.0f) keep_top_p_and_min_p();
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double target = random_.uniform() * total;
  const Candidate* last = nullptr;
  for (const Candidate& c : candidates_) {
    if (c.weight == 0.0) continue;
    last = &c;
    target -= c.weight;
    if (target < 0) break;
  }
  return last->id;
}

void Sampler::report(std::span<const float> logits, SampledToken& token) {
  float best = max_of(logits);
  double offset = best + std::log(sum_of_exp(logits, best));
  auto logprob = [&](TokenId id) { return static_cast<float>(logits[static_cast<size_t>(id)] - offset); };
  token.logprob = logprob(token.id);
  if (options_.logprobs == 0) return;
  candidates_.clear();
  for (TokenId id = 0; id < vocab_size_; id++) {
    float logit = logits[static_cast<size_t>(id)];
    if (logit > -kInfinity) candidates_.push_back({logit, id, 0.0});
  }
  auto count = std::min(candidates_.size(), static_cast<size_t>(options_.logprobs));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count), candidates_.end(),
                    better);
  for (size_t i = 0; i < count; i++) token.top.push_back({candidates_[i].id, logprob(candidates_[i].id)});
}

}  // namespace godwit
