#include "eval/weight_bases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "engine/probe.h"
#include "tensor/quant.h"

namespace godwit {
namespace {

Result<std::vector<float>> numbers_of(Backend& backend, const Tensor& stored) {
  Tensor tensor = stored;
  Buffer rows;
  if (stored.packed) {
    GODWIT_ASSIGN(rows, backend.allocate(stored.bytes()));
    tensor.data = rows.data();
    tensor.packed = false;
    backend.unpack(stored, tensor);
  }
  std::vector<std::byte> bytes(tensor.bytes());
  backend.download(bytes, tensor.data);
  std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
  dequantize(tensor.dtype, bytes.data(), numbers.data(), numbers.size());
  return numbers;
}

// weight[heads * dims, width] with its columns times `before` and the rows of each head times `behind`, if there are
// any: adds a basis for each head.
Status add_bases(std::vector<float> weight, const std::vector<float>& before, const std::vector<float>& behind,
                 size_t dims, const std::stop_token& stop, std::vector<float>& bases) {
  const size_t width = before.size();
  for (size_t row = 0; row < weight.size() / width; ++row)
    for (size_t i = 0; i < width; ++i)
      weight[row * width + i] *= before[i] * (behind.empty() ? 1.0f : behind[row % dims]);
  for (size_t head = 0; head < weight.size() / width / dims; ++head) {
    if (stop.stop_requested()) return errorf(ErrorCode::kCancelled, "fitting singular vectors was stopped");
    const float* rows = &weight[head * dims * width];
    std::vector<double> products(dims * dims);
    for (size_t i = 0; i < dims; ++i)
      for (size_t j = 0; j <= i; ++j) {
        const double dot = std::inner_product(rows + i * width, rows + (i + 1) * width, rows + j * width, 0.0);
        products[i * dims + j] = products[j * dims + i] = dot;
      }
    for (double x : eigenvectors(std::move(products), dims).rows) bases.push_back(static_cast<float>(x));
  }
  return {};
}

}  // namespace

// Jacobi's method: turn pairs of axes until nothing is left beside the diagonal.
Eigenvectors eigenvectors(std::vector<double> matrix, size_t size) {
  constexpr int kMostSweeps = 50;
  std::vector<double> rows(size * size);
  for (size_t i = 0; i < size; ++i) rows[i * size + i] = 1;
  const auto at = [&](size_t i, size_t j) -> double& { return matrix[i * size + j]; };
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double beside = 0, all = 0;
    for (size_t i = 0; i < size; ++i)
      for (size_t j = 0; j < size; ++j) {
        all += at(i, j) * at(i, j);
        if (i != j) beside += at(i, j) * at(i, j);
      }
    if (beside <= 1e-24 * all) break;
    for (size_t p = 0; p + 1 < size; ++p)
      for (size_t q = p + 1; q < size; ++q) {
        if (at(p, q) == 0) continue;
        const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
        const double tangent = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(tangent * tangent + 1), s = tangent * c;
        const auto turn = [&](double& x, double& y) {
          const double turned = c * x - s * y;
          y = s * x + c * y;
          x = turned;
        };
        for (size_t i = 0; i < size; ++i) turn(at(i, p), at(i, q));
        for (size_t i = 0; i < size; ++i) turn(at(p, i), at(q, i));
        for (size_t i = 0; i < size; ++i) turn(rows[p * size + i], rows[q * size + i]);
      }
  }
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at(a, a) > at(b, b); });
  Eigenvectors sorted;
  for (size_t i : order) {
    sorted.values.push_back(at(i, i));
    sorted.rows.insert(sorted.rows.end(), rows.begin() + static_cast<ptrdiff_t>(i * size),
                       rows.begin() + static_cast<ptrdiff_t>((i + 1) * size));
  }
  return sorted;
}

Result<WeightBases> fit_weight_bases(const Engine& engine, const std::stop_token& stop) {
  const Session session = engine.start();
  const Model& model = SessionProbe::model(session);
  Backend& backend = SessionProbe::cache(session).pool().backend();
  const ModelConfig& config = model.config();
  const auto dims = static_cast<size_t>(config.head_dim);
  const int64_t heads = static_cast<int64_t>(config.layers.size()) * config.kv_heads, dim = config.head_dim;
  CodecTable k{"k", {heads, dim, dim}, {}, DType::kF32}, v{"v", {heads, dim, dim}, {}, DType::kF32};
  CodecTable rope{"rope", {heads, config.rotary_dim / 2}, {}, DType::kF32};
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const LayerWeights& weights = model.weights().layers[layer];
    GODWIT_ASSIGN(const std::vector<float> before, numbers_of(backend, weights.attn_norm));
    std::vector<float> behind;
    if (config.qk_norm) {
      GODWIT_ASSIGN(behind, numbers_of(backend, weights.k_norm));
    }
    GODWIT_ASSIGN(std::vector<float> of_k, numbers_of(backend, weights.k.weight));
    GODWIT_ASSIGN(std::vector<float> of_v, numbers_of(backend, weights.v.weight));
    GODWIT_TRY(add_bases(std::move(of_k), before, behind, dims, stop, k.numbers));
    GODWIT_TRY(add_bases(std::move(of_v), before, {}, dims, stop, v.numbers));
    GODWIT_ASSIGN(const std::vector<float> speed, numbers_of(backend, model.inv_freq(layer)));
    for (int head = 0; head < config.kv_heads; ++head)
      rope.numbers.insert(rope.numbers.end(), speed.begin(), speed.end());
  }
  WeightBases bases;
  bases.settings = {{"rope_pairs", config.rope_style == RopeStyle::kPairs ? 1 : 0},
                    {"rotary_dim", static_cast<uint32_t>(config.rotary_dim)}};
  for (CodecTable* table : {&k, &v, &rope}) bases.tables.push_back(std::move(*table));
  return bases;
}

}  // namespace godwit
