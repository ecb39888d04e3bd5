#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace godwit {
namespace {

std::vector<double> log_probabilities(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  std::vector<double> result;
  for (float logit : logits) result.push_back(static_cast<double>(logit) - top - std::log(sum));
  return result;
}

size_t top_of(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double divergence(std::span<const float> right, std::span<const float> other) {
  const std::vector<double> p = log_probabilities(right), q = log_probabilities(other);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return std::max(sum, 0.0);
}

}  // namespace

void DivergenceMean::add(std::span<const float> right_logits, std::span<const float> logits) {
  const double kl = divergence(right_logits, logits);
  sum_ += kl;
  max_ = std::max(max_, kl);
  same_ += top_of(right_logits) == top_of(logits) ? 1 : 0;
  ++tokens_;
}

Result<DivergenceResult> measure_divergence(const Engine& full, const Engine& engine, std::string_view text,
                                            const DivergenceOptions& options, std::stop_token stop) {
  if (options.tail < 1 || options.length <= options.tail || options.max_windows < 0)
    return errorf(ErrorCode::kInvalidArgument, "{} windows of {} tokens with the last {} predicted make no sense",
                  options.max_windows, options.length, options.tail);
  GODWIT_ASSIGN(auto tokens, engine.tokenize(text, {.add_bos = false}));
  GODWIT_ASSIGN(auto begin, engine.tokenize("", {.add_bos = true}));
  const auto length = static_cast<size_t>(options.length), tail = static_cast<size_t>(options.tail);
  size_t windows = tokens.size() / length;
  if (options.max_windows > 0) windows = std::min(windows, static_cast<size_t>(options.max_windows));
  if (windows == 0)
    return errorf(ErrorCode::kInvalidArgument, "the text has {} tokens, less than one window of {}", tokens.size(),
                  length);
  DivergenceResult result;
  DivergenceMean mean;
  for (size_t w = 0; w < windows; ++w) {
    const auto window = std::span(tokens).subspan(w * length, length);
    std::vector<std::vector<float>> right;
    auto read = [&](Session& session, auto on_logits) -> Status {
      GODWIT_TRY(session.append(begin));
      GODWIT_TRY(session.append(window.first(length - tail)));
      return session.read(window.last(tail), on_logits, stop);
    };
    {
      Session session = full.start();
      GODWIT_TRY(
          read(session, [&](std::span<const float> logits) { right.emplace_back(logits.begin(), logits.end()); }));
    }
    Session session = engine.start();
    size_t at = 0;
    GODWIT_TRY(read(session, [&](std::span<const float> logits) { mean.add(right[at++], logits); }));
    result.kv_bytes_per_token += static_cast<double>(session.kv_bytes()) / static_cast<double>(session.tokens().size());
    if (options.on_progress) options.on_progress(static_cast<int>(w + 1), static_cast<int>(windows));
  }
  result.tokens = mean.tokens();
  result.mean_kl = mean.mean_kl();
  result.max_kl = mean.max_kl();
  result.same_top = mean.same_top();
  result.kv_bytes_per_token /= static_cast<double>(windows);
  return result;
}

}  // namespace godwit
