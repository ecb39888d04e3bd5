// How many bits K and V of each layer need: KVTuner's question, answered by the divergence from full attention.
//
// Each layer alone gets fewer bits while all others have 8, and what that does to the model's predictions is what those
// bits cost. Of all choices within the budget the one with the least sum of costs is taken, exactly; it is then
// measured as a whole, as are the choices that are the same for every layer, and the best of them wins. Deviation: the
// paper searches groups of similar layers by a genetic algorithm; sums of costs need no search.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "kv/layer_bits.h"
#include <godwit/engine.h>

namespace godwit {

struct TuneBitsOptions {
  double bits = 4.5;  // of a number, scales and middles included, mean over layers and K and V
  int length = 2048;  // tokens of a window
  int tail = 256;     // the last of them are predicted
  int windows = 1;
  uint64_t seed = 1;  // of the built-in text
  std::function<void(double share)> on_progress;
};

struct MeasuredBits {
  std::vector<LayerBits> layers;
  double bits = 0;     // of a number, scales and middles included
  double mean_kl = 0;  // nats, from an f32 cache
};

struct TunedBits {
  MeasuredBits best;
  std::vector<MeasuredBits> uniform;       // the same for every layer, whether within the budget or not
  std::vector<LayerBits> choices;          // most bits first
  std::vector<std::vector<double>> costs;  // [layers][choices], nats
};

// Over windows of the text, or of built-in text where it is empty. REQUIRES: `model` names no KV codec or policy of its
// own; they are set here.
Result<TunedBits> tune_bits(const EngineOptions& model, std::string_view text, const TuneBitsOptions& options,
                            std::stop_token stop = {});

// The choice for each layer with the least sum of costs whose sizes sum to at most `budget`; empty where none does.
// costs is [layers][choices], sizes are those of the choices.
std::vector<size_t> cheapest_choices(const std::vector<std::vector<double>>& costs, const std::vector<double>& sizes,
                                     double budget);

}  // namespace godwit
