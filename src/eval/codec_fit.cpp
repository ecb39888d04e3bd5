#include "eval/codec_fit.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "backend/forms/product.h"
#include "base/result.h"
#include "engine/probe.h"

namespace godwit {
namespace {

constexpr size_t kCentroids = ProductForm::kCentroids;

// Reads the beginning of the text.
Status read(const Engine& engine, std::string_view text, int tokens, int least, Session& session,
            std::stop_token stop) {
  GODWIT_ASSIGN(std::vector<TokenId> ids, engine.tokenize(text, {}));
  if (tokens < least || ids.size() < static_cast<size_t>(least))
    return errorf(ErrorCode::kInvalidArgument,
                  "{} tokens of a text that has {} are too few to fit to; give a text and --tokens of {} at least",
                  tokens, ids.size(), least);
  const int64_t most = std::min<int64_t>(tokens, engine.info().context_tokens);
  ids.resize(std::min(ids.size(), static_cast<size_t>(most)));
  GODWIT_TRY(session.append(ids));
  GODWIT_TRY(session.prefill({}, std::move(stop)));
  return {};
}

class QueryWatch final : public AttentionObserver {
 public:
  explicit QueryWatch(Backend& backend) : backend_(backend) {}

  void attended(int layer, const AttentionArgs& args) override {
    const auto rows = static_cast<size_t>(args.q.shape[0]), heads = static_cast<size_t>(args.q.shape[1]);
    const auto dims = static_cast<size_t>(args.q.shape[2]), group = heads / static_cast<size_t>(args.kv_heads);
    if (squares_.size() <= static_cast<size_t>(layer)) squares_.resize(static_cast<size_t>(layer) + 1);
    std::vector<double>& squares = squares_[static_cast<size_t>(layer)];
    squares.resize(heads / group * dims);
    std::vector<float> q(heads * dims);
    for (size_t row = 0; row < rows; ++row) {
      backend_.download(std::as_writable_bytes(std::span(q)), args.q.data + row * args.q.row_stride_bytes);
      for (size_t head = 0; head < heads; ++head)
        for (size_t dim = 0; dim < dims; ++dim)
          squares[head / group * dims + dim] += double{q[head * dims + dim]} * q[head * dims + dim];
    }
    if (layer == 0) queries_ += static_cast<double>(rows * group);
  }

  std::vector<float> means() const {
    std::vector<float> means;
    for (const auto& layer : squares_)
      for (double square : layer) means.push_back(static_cast<float>(square / queries_));
    return means;
  }

 private:
  Backend& backend_;
  std::vector<std::vector<double>> squares_;  // [layers][kv_heads * head_dim]
  double queries_ = 0;
};

// K and V of every slot of a head, [slots, head_dim].
struct HeadNumbers {
  std::vector<float> k, v;
};

Result<HeadNumbers> numbers_of(const KvSequence& cache, int layer, int head) {
  const KvPool& pool = cache.pool();
  std::vector<PageRef> pages;
  cache.list_pages(layer, head, 0, cache.pages(layer, head), pages);
  std::vector<KvSlot> slots;
  for (const PageRef& page : pages)
    for (uint32_t i = 0; i < page.count; ++i) slots.push_back({page.page, i});
  const auto rows = static_cast<int64_t>(slots.size()), dim = int64_t{pool.format().head_dim};
  HeadNumbers numbers;
  numbers.k.resize(static_cast<size_t>(rows * dim));
  numbers.v.resize(numbers.k.size());
  Backend& backend = pool.backend();
  GODWIT_ASSIGN(const Buffer memory, backend.allocate(2 * numbers.k.size() * sizeof(float)));
  const Tensor k(memory.data(), DType::kF32, {rows, dim}), v(memory.data() + k.bytes(), DType::kF32, {rows, dim});
  backend.kv_read(
      {.format = pool.format(), .slab = pool.slab(), .slots = slots, .k = k, .v = v, .open_slab = pool.open_slab()});
  backend.download(std::as_writable_bytes(std::span(numbers.k)), k.data);
  backend.download(std::as_writable_bytes(std::span(numbers.v)), v.data);
  return numbers;
}

// Points to begin with, each drawn with a chance that grows with the square of its distance from those before
// (k-means++, Arthur and Vassilvitskii, 2007): rare numbers are what a model looks up, and must not all be far from
// every centroid.
std::vector<float> spread_centroids(const std::vector<float>& points, size_t width, uint64_t seed) {
  const size_t count = points.size() / width;
  std::mt19937_64 random(seed);
  std::vector<float> centroids(width * kCentroids), off(count, std::numeric_limits<float>::max());
  size_t chosen = random() % count;
  for (size_t c = 0; c < kCentroids; ++c) {
    double total = 0;
    for (size_t p = 0; p < count; ++p) {
      float square = 0;
      for (size_t i = 0; i < width; ++i) {
        const float difference = points[p * width + i] - points[chosen * width + i];
        square += difference * difference;
      }
      off[p] = std::min(off[p], square);
      total += off[p];
    }
    for (size_t i = 0; i < width; ++i) centroids[i * kCentroids + c] = points[chosen * width + i];
    double left = static_cast<double>(random() >> 11) * 0x1p-53 * total;
    for (chosen = 0; chosen + 1 < count && left >= off[chosen]; ++chosen) left -= off[chosen];
  }
  return centroids;
}

// Centroids of each group of dimensions of numbers[slots, dims] (see ProductForm), behind those in `book`.
void add_book(const std::vector<float>& numbers, size_t dims, const CodebookFitOptions& options,
              std::vector<float>& book) {
  const auto width = static_cast<size_t>(options.width);
  const size_t slots = numbers.size() / dims, groups = dims / width, begin = book.size();
  book.resize(begin + dims * kCentroids);
  std::vector<float> points(slots * width);
  for (size_t group = 0; group < groups; ++group) {
    for (size_t slot = 0; slot < slots; ++slot)
      for (size_t i = 0; i < width; ++i) points[slot * width + i] = numbers[slot * dims + i * groups + group];
    const std::vector<float> centroids = fit_centroids(points, width, options.iterations, options.seed);
    for (size_t i = 0; i < width; ++i)
      std::copy_n(&centroids[i * kCentroids], kCentroids, &book[begin + (i * groups + group) * kCentroids]);
  }
}

}  // namespace

std::vector<float> fit_centroids(const std::vector<float>& points, size_t width, int iterations, uint64_t seed) {
  const size_t count = points.size() / width;
  std::vector<size_t> order(count);
  std::vector<float> centroids = spread_centroids(points, width, seed);
  std::vector<double> sums(width * kCentroids), off(count);
  std::vector<size_t> members(kCentroids);
  for (int step = 0; step < iterations; ++step) {
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(members.begin(), members.end(), size_t{0});
    for (size_t p = 0; p < count; ++p) {
      const float* point = &points[p * width];
      const size_t c = nearest_centroid(centroids.data(), kCentroids, point, width);
      ++members[c];
      off[p] = 0;
      for (size_t i = 0; i < width; ++i) {
        sums[i * kCentroids + c] += point[i];
        const double difference = double{point[i]} - centroids[i * kCentroids + c];
        off[p] += difference * difference;
      }
    }
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t empty = static_cast<size_t>(std::count(members.begin(), members.end(), size_t{0}));
    const auto far = order.begin() + static_cast<ptrdiff_t>(std::min(empty, count));
    std::partial_sort(order.begin(), far, order.end(),
                      [&](size_t a, size_t b) { return off[a] != off[b] ? off[a] > off[b] : a < b; });
    size_t next = 0;
    for (size_t c = 0; c < kCentroids; ++c) {
      const size_t lonely = members[c] == 0 ? order[next++ % count] : 0;
      for (size_t i = 0; i < width; ++i)
        centroids[i * kCentroids + c] =
            members[c] == 0 ? points[lonely * width + i]
                            : static_cast<float>(sums[i * kCentroids + c] / static_cast<double>(members[c]));
    }
  }
  return centroids;
}

Result<std::vector<CodecTable>> fit_queries(const Engine& engine, std::string_view text, const QueryFitOptions& options,
                                            std::stop_token stop) {
  Session session = engine.start();
  const KvSequence& cache = SessionProbe::cache(session);
  QueryWatch watch(cache.pool().backend());
  SessionProbe::watch(session, &watch);
  GODWIT_TRY(read(engine, text, options.tokens, 64, session, std::move(stop)));
  SessionProbe::watch(session, nullptr);
  const int64_t heads = int64_t{cache.shape().layers} * cache.shape().kv_heads;
  return std::vector<CodecTable>{{"queries", {heads, cache.pool().format().head_dim}, watch.means()}};
}

Result<std::vector<CodecTable>> fit_codebooks(const Engine& engine, std::string_view text,
                                              const CodebookFitOptions& options, std::stop_token stop) {
  if (options.width != 2 && options.width != 4)
    return errorf(ErrorCode::kInvalidArgument, "groups of {} numbers have no codebooks; give a width of 2 or 4",
                  options.width);
  Session session = engine.start();
  const KvSequence& cache = SessionProbe::cache(session);
  const KvShape shape = cache.shape();
  const auto dims = static_cast<size_t>(cache.pool().format().head_dim);
  if (dims % static_cast<size_t>(16 * options.width) != 0)
    return errorf(ErrorCode::kUnsupported,
                  "KV codec 'million' with groups of {} wants heads of a multiple of {}; this "
                  "model's have {} numbers",
                  options.width, 16 * options.width, dims);
  GODWIT_TRY(read(engine, text, options.tokens, 512, session, stop));
  const std::vector<int64_t> sizes = {int64_t{shape.layers} * shape.kv_heads, static_cast<int64_t>(dims),
                                      static_cast<int64_t>(kCentroids)};
  CodecTable k{"k", sizes, {}}, v{"v", sizes, {}};
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int head = 0; head < shape.kv_heads; ++head) {
      if (stop.stop_requested()) return errorf(ErrorCode::kCancelled, "fitting codebooks was stopped");
      GODWIT_ASSIGN(const HeadNumbers numbers, numbers_of(cache, layer, head));
      add_book(numbers.k, dims, options, k.numbers);
      add_book(numbers.v, dims, options, v.numbers);
      if (options.on_progress) options.on_progress(layer * shape.kv_heads + head + 1, shape.layers * shape.kv_heads);
    }
  return std::vector<CodecTable>{std::move(k), std::move(v)};
}

}  // namespace godwit
