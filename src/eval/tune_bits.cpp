#include "eval/tune_bits.h"

#include <algorithm>

#include "base/result.h"
#include "engine/probe.h"
#include "eval/divergence.h"
#include "eval/repeats.h"
#include "kv/codec.h"

namespace godwit {
namespace {

constexpr LayerBits kChoices[] = {{8, 8}, {8, 4}, {4, 4}, {4, 2}, {2, 2}};

class BitsMeter {
 public:
  static Result<BitsMeter> create(const EngineOptions& model, std::string_view text, const TuneBitsOptions& options,
                                  std::stop_token stop) {
    if (options.tail < 1 || options.length <= options.tail || options.windows < 1)
      return errorf(ErrorCode::kInvalidArgument, "{} windows of {} tokens with the last {} predicted make no sense",
                    options.windows, options.length, options.tail);
    BitsMeter meter(model, options, std::move(stop));
    GODWIT_ASSIGN(const Engine full, Engine::open(meter.with_codec("f32")));
    GODWIT_TRY(meter.make_windows(full, text));
    GODWIT_TRY(meter.read(
        full, [&](size_t, std::span<const float> logits) { meter.right_.emplace_back(logits.begin(), logits.end()); }));
    const Session session = full.start();
    const KvSequence& cache = SessionProbe::cache(session);
    meter.layers_ = cache.shape().layers;
    meter.head_dim_ = cache.pool().format().head_dim;
    return meter;
  }

  int layers() const { return layers_; }
  // Of a number with such bits, or an error if the model's heads have no size for them.
  Result<double> bits_of(const LayerBits& bits) const {
    const std::vector one = {bits};
    GODWIT_ASSIGN(const auto formats, make_kv_formats("kvtuner:bits=" + layer_bits_text(one), head_dim_, 1));
    const KvFormat& format = formats[0];
    return static_cast<double>(format.page_bytes()) * 8 / (2.0 * format.page_tokens * format.head_dim);
  }
  Result<MeasuredBits> measure(std::vector<LayerBits> bits) {
    MeasuredBits measured;
    for (const LayerBits& layer : bits) {
      GODWIT_ASSIGN(const double own, bits_of(layer));
      measured.bits += own;
    }
    measured.bits /= static_cast<double>(bits.size());
    GODWIT_ASSIGN(const Engine engine, Engine::open(with_codec("kvtuner:bits=" + layer_bits_text(bits))));
    DivergenceMean mean;
    GODWIT_TRY(read(engine, [&](size_t at, std::span<const float> logits) { mean.add(right_[at], logits); }));
    measured.mean_kl = mean.mean_kl();
    measured.layers = std::move(bits);
    return measured;
  }

 private:
  BitsMeter(const EngineOptions& model, const TuneBitsOptions& options, std::stop_token stop)
      : model_(model), options_(options), stop_(std::move(stop)) {
    model_.context_tokens = options.length + 1;
    model_.on_load = {};
  }

  EngineOptions with_codec(std::string codec) const {
    EngineOptions options = model_;
    options.kv_codec = std::move(codec);
    return options;
  }

  Status make_windows(const Engine& full, std::string_view text) {
    const auto length = static_cast<size_t>(options_.length), wanted = static_cast<size_t>(options_.windows);
    if (text.empty()) {
      for (size_t i = 0; i < wanted; ++i) {
        auto tokens = repeated_tokens(full, (options_.length + 1) / 2, 2, options_.seed + i);
        tokens.resize(length);
        windows_.push_back(std::move(tokens));
      }
      return {};
    }
    GODWIT_ASSIGN(const auto tokens, full.tokenize(text, {.add_bos = false}));
    if (tokens.size() < length * wanted)
      return errorf(ErrorCode::kInvalidArgument,
                    "the text has {} tokens, less than {} windows of {}; give a longer one or fewer or shorter windows",
                    tokens.size(), wanted, length);
    GODWIT_ASSIGN(const auto begin, full.tokenize("", {.add_bos = true}));
    for (size_t i = 0; i < wanted; ++i) {
      std::vector<TokenId>& window = windows_.emplace_back(begin);
      window.insert(window.end(), tokens.begin() + static_cast<ptrdiff_t>(i * length),
                    tokens.begin() + static_cast<ptrdiff_t>((i + 1) * length));
      window.resize(length);
    }
    return {};
  }

  template <class Visit>
  Status read(const Engine& engine, Visit&& visit) {
    size_t at = 0;
    for (const std::vector<TokenId>& window : windows_) {
      const auto tail = static_cast<size_t>(options_.tail);
      Session session = engine.start();
      GODWIT_TRY(session.append(std::span(window).first(window.size() - tail)));
      GODWIT_TRY(session.read(
          std::span(window).last(tail), [&](std::span<const float> logits) { visit(at++, logits); }, stop_));
    }
    return {};
  }

  EngineOptions model_;
  TuneBitsOptions options_;
  std::stop_token stop_;
  std::vector<std::vector<TokenId>> windows_;
  std::vector<std::vector<float>> right_;  // logits of all tails
  int layers_ = 0, head_dim_ = 0;
};

}  // namespace

std::vector<size_t> cheapest_choices(const std::vector<std::vector<double>>& costs, const std::vector<double>& sizes,
                                     double budget) {
  struct State {
    double size, cost;
    std::vector<size_t> choices;
  };
  // Layer by layer; of two ways to choose for the layers so far, one that is larger and no better is never needed.
  std::vector<State> states = {{0, 0, {}}};
  for (const std::vector<double>& layer : costs) {
    std::vector<State> next;
    for (const State& state : states) {
      for (size_t i = 0; i < layer.size(); ++i) {
        State& made = next.emplace_back(state);
        made.size += sizes[i];
        made.cost += layer[i];
        made.choices.push_back(i);
      }
    }
    std::sort(next.begin(), next.end(),
              [](const State& a, const State& b) { return a.size != b.size ? a.size < b.size : a.cost < b.cost; });
    states.clear();
    for (State& state : next)
      if (state.size <= budget && (states.empty() || state.cost < states.back().cost))
        states.push_back(std::move(state));
    if (states.empty()) return {};
  }
  return states.back().choices;
}

Result<TunedBits> tune_bits(const EngineOptions& model, std::string_view text, const TuneBitsOptions& options,
                            std::stop_token stop) {
  GODWIT_ASSIGN(BitsMeter meter, BitsMeter::create(model, text, options, std::move(stop)));
  TunedBits tuned;
  std::vector<double> sizes;
  for (const LayerBits& choice : kChoices) {
    const auto bits = meter.bits_of(choice);
    if (!bits && choice == kChoices[0]) return tl::unexpected(bits.error());
    if (!bits) continue;  // heads of a size that fewer bits do not fit into bytes with
    tuned.choices.push_back(choice);
    sizes.push_back(*bits);
  }
  if (!(options.bits >= sizes.back()))  // NaN is too few as well
    return errorf(ErrorCode::kInvalidArgument, "{} bits a number cannot be: the fewest are {}, scales included",
                  options.bits, sizes.back());
  const auto layers = static_cast<size_t>(meter.layers());
  const double total = static_cast<double>(tuned.choices.size() + layers * (tuned.choices.size() - 1) + 1);
  double done = 0;
  const auto note = [&] {
    if (options.on_progress) options.on_progress(++done / total);
  };

  for (const LayerBits& choice : tuned.choices) {
    GODWIT_ASSIGN(tuned.uniform.emplace_back(), meter.measure(std::vector<LayerBits>(layers, choice)));
    note();
  }
  const std::vector<LayerBits> most(layers, tuned.choices[0]);
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<double>& costs = tuned.costs.emplace_back(1, 0.0);
    for (size_t i = 1; i < tuned.choices.size(); ++i) {
      std::vector<LayerBits> bits = most;
      bits[layer] = tuned.choices[i];
      GODWIT_ASSIGN(const MeasuredBits alone, meter.measure(std::move(bits)));
      // Fewer bits are no better; where they seem to be, that is noise.
      costs.push_back(std::max(costs.back(), alone.mean_kl - tuned.uniform[0].mean_kl));
      note();
    }
  }
  std::vector<LayerBits> chosen;
  for (size_t i : cheapest_choices(tuned.costs, sizes, options.bits * static_cast<double>(layers) + 1e-9))
    chosen.push_back(tuned.choices[i]);
  GODWIT_ASSIGN(tuned.best, meter.measure(std::move(chosen)));
  note();
  for (const MeasuredBits& same : tuned.uniform)
    if (same.bits <= options.bits && same.mean_kl < tuned.best.mean_kl) tuned.best = same;
  return tuned;
}

}  // namespace godwit
