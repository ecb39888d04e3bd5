#include "eval/cost.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace godwit {

StepCost& StepCost::operator+=(const StepCost& other) {
  matmul_flops += other.matmul_flops;
  attention_flops += other.attention_flops;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  return *this;
}

Result<CostModel> CostModel::make(const ModelSource& source, const KvFormat& format) {
  return make(source, std::vector<KvFormat>(source.config().layers.size(), format));
}

Result<CostModel> CostModel::make(const ModelSource& source, std::vector<KvFormat> layers) {
  CostModel cost;
  cost.config_ = source.config();
  GODWIT_CHECK(layers.size() == cost.config_.layers.size());
  cost.kv_ = std::move(layers);
  const bool tied = !source.has("output.weight");
  std::map<DType, uint64_t> types;
  for (const std::string& name : source.tensor_names()) {
    GODWIT_ASSIGN(auto pieces, source.tensor(name));
    for (const TensorEntry* piece : pieces) {
      uint64_t elements = 1;
      for (int64_t n : piece->shape) elements *= static_cast<uint64_t>(n);
      cost.parameters_ += elements;
      cost.bytes_ += piece->bytes.size();
      types[piece->dtype] += elements;
      if (name.rfind("rope_", 0) == 0) continue;  // settings, not weights
      const bool embedding = name == "token_embd.weight";
      if (embedding && !tied) continue;  // a row is looked up, no more
      Weights& sum = embedding || name == "output.weight"       ? cost.output_
                     : name.find("_exps.") != std::string::npos ? cost.experts_
                                                                : cost.dense_;
      sum.bytes += static_cast<double>(piece->bytes.size());
      if (name.find("norm") == std::string::npos && name.find(".bias") == std::string::npos)
        sum.elements += static_cast<double>(elements);
    }
  }
  uint64_t most = 0;
  for (const auto& [type, elements] : types)
    if (elements > most) most = elements, cost.main_type_ = type;
  return cost;
}

StepCost CostModel::step(int64_t rows, int64_t depth) const {
  StepCost cost;
  const auto n = static_cast<double>(rows);
  const double experts = config_.experts, per_token = config_.experts_per_token;
  const double used = experts > 0 ? per_token / experts : 0;                        // by one row
  const double touched = experts > 0 ? std::min(1.0, n * per_token / experts) : 0;  // by all rows, at most
  cost.matmul_flops = 2 * (n * (dense_.elements + used * experts_.elements) + output_.elements);
  cost.weight_bytes = dense_.bytes + touched * experts_.bytes + output_.bytes;
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const LayerConfig& layer = config_.layers[i];
    const int64_t window = layer.window > 0 ? layer.window : depth + rows;
    // Row i sees min(depth + i + 1, window) keys: a ramp until the window is full, then a plateau.
    const auto ramp = static_cast<double>(std::clamp<int64_t>(window - depth, 0, rows));
    const double pairs =
        ramp * static_cast<double>(depth) + ramp * (ramp + 1) / 2 + (n - ramp) * static_cast<double>(window);
    cost.attention_flops += 4.0 * config_.head_dim * config_.heads * pairs;
    const double slot = static_cast<double>(kv_[i].page_bytes()) / kv_[i].page_tokens;
    cost.kv_bytes += slot * config_.kv_heads * static_cast<double>(std::min(depth + rows, window + rows - 1));
  }
  return cost;
}

StepCost CostModel::prompt(int64_t tokens, int64_t depth, int64_t chunk) const {
  StepCost sum;
  for (int64_t done = 0; done < tokens; done += chunk) sum += step(std::min(chunk, tokens - done), depth + done);
  return sum;
}

StepCost CostModel::generation(int64_t tokens, int64_t depth) const {
  return prompt(tokens, depth, 1);
}

}  // namespace godwit
