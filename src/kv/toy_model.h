// For tests of retention: a model whose queries, keys and values are noise that depends on layer, position and head
// alone, so that neither chunks nor drops change them. Everything else is as in a step of a real one.
#pragma once

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "kv/retention.h"

namespace godwit::kv_test {

inline constexpr KvShape kToyShape{.layers = 3, .kv_heads = 2};
inline constexpr int kToyHeads = 4;
inline constexpr size_t kToyBytes = size_t{64} << 20;
inline const KvFormat kToyFormat{.dtype = DType::kF32, .head_dim = 16, .page_tokens = 16};

inline float noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x = ((a * 0x9e3779b97f4a7c15 + b) * 0xbf58476d1ce4e5b9 + c) * 0x94d049bb133111eb + d;
  for (int i = 0; i < 3; ++i) x = (x ^ (x >> 29)) * 0xff51afd7ed558ccd;
  return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

class Toy {
 public:
  explicit Toy(const KvRetentionOptions& options, int threads = 1, size_t pool_bytes = kToyBytes,
               const KvFormat& format = kToyFormat)
      : backend_(std::move(*make_cpu_backend({threads, ""}))),
        rules_(rules_of(options, format)),
        pool_(std::move(*KvPool::create(*backend_, rules_->format, pool_bytes))),
        sequence_(std::make_unique<KvSequence>(*pool_, kToyShape)) {
    retention_ = std::make_unique<KvRetention>(rules_, *sequence_);
  }
  // A fork of another.
  explicit Toy(const Toy& other)
      : backend_(other.backend_),
        rules_(other.rules_),
        pool_(other.pool_),
        sequence_(other.sequence_->fork()),
        retention_(std::make_unique<KvRetention>(*other.retention_, *sequence_)) {}

  const KvSequence& sequence() const { return *sequence_; }
  KvPool& pool() const { return *pool_; }
  const KvRetentionRules& rules() const { return *rules_; }
  KvRetention& retention() { return *retention_; }

  Status step(int rows, bool prompt_ends = false) {
    GODWIT_TRY(retention_->prepare(rows));
    const int32_t begin = sequence_->next_position();
    if (!sequence_->append(rows)) return errorf(ErrorCode::kExhausted, "full");
    for (int layer = 0; layer < kToyShape.layers; ++layer) attend(layer, begin, rows);
    sequence_->settle();
    GODWIT_TRY(retention_->finish(rows, prompt_ends));
    GODWIT_TRY(sequence_->check_integrity());
    return pool_->check_integrity();
  }
  // A prompt in chunks.
  void prompt(int tokens, int chunk) {
    for (int left = tokens; left > 0; left -= chunk) {
      Status status = step(std::min(left, chunk), left <= chunk);
      ASSERT_TRUE(status) << status.error().message;
    }
  }
  void truncate(int32_t end) {
    sequence_->truncate(end);
    retention_->forget(end);
  }

  std::vector<int32_t> positions(int layer, int head) const {
    std::vector<int32_t> list;
    for (size_t i = 0; i < sequence_->slots(layer, head); ++i) list.push_back(sequence_->position(layer, head, i));
    return list;
  }
  std::vector<std::vector<int32_t>> positions() const {
    std::vector<std::vector<int32_t>> list;
    for (int layer = 0; layer < kToyShape.layers; ++layer)
      for (int head = 0; head < kToyShape.kv_heads; ++head) list.push_back(positions(layer, head));
    return list;
  }

  // K and V of a head as its pages have them, [slots, head_dim] each, with positions; and as the model wrote them.
  std::pair<std::vector<float>, std::vector<float>> read(int layer, int head) const {
    std::vector<PageRef> pages;
    sequence_->list_pages(layer, head, 0, sequence_->pages(layer, head), pages);
    std::vector<KvSlot> slots;
    for (const PageRef& page : pages)
      for (uint32_t i = 0; i < page.count; ++i) slots.push_back({page.page, i});
    const auto rows = static_cast<int64_t>(slots.size()), dim = int64_t{pool_->format().head_dim};
    std::vector<float> k(static_cast<size_t>(rows * dim)), v(k.size());
    backend_->kv_read({.format = pool_->format(),
                       .slab = pool_->slab(),
                       .slots = slots,
                       .k = Tensor(k.data(), DType::kF32, {rows, dim}),
                       .v = Tensor(v.data(), DType::kF32, {rows, dim}),
                       .open_slab = pool_->open_slab()});
    return {k, v};
  }
  static float key(int layer, int32_t position, int head, int d) { return number(2, layer, position, head, d); }
  static float value(int layer, int32_t position, int head, int d) { return number(3, layer, position, head, d); }

  // The weight of every position for a query, in fp64, if it sees everything before it.
  static std::vector<double> weights(int layer, int head, int32_t position) {
    std::vector<double> mean(static_cast<size_t>(position) + 1, 0);
    const int group = kToyHeads / kToyShape.kv_heads;
    for (int h = head * group; h < (head + 1) * group; ++h) {
      std::vector<double> line;
      double sum = 0;
      for (int32_t p = 0; p <= position; ++p) {
        double score = 0;
        for (int d = 0; d < kToyFormat.head_dim; ++d)
          score += static_cast<double>(number(1, layer, position, h, d)) * number(2, layer, p, head, d);
        line.push_back(std::exp(score * kScale));
        sum += line.back();
      }
      for (size_t i = 0; i < line.size(); ++i) mean[i] += line[i] / sum / group;
    }
    return mean;
  }

 private:
  static constexpr double kScale = 1.5;

  static float number(uint64_t what, int layer, int32_t position, int head, int d) {
    return noise(what * 100 + static_cast<uint64_t>(layer), static_cast<uint64_t>(position),
                 static_cast<uint64_t>(head), static_cast<uint64_t>(d));
  }

  void attend(int layer, int32_t begin, int rows) {
    if (rows == 0) return;
    auto fill = [&](uint64_t what, int heads) {
      std::vector<float> values;
      for (int row = 0; row < rows; ++row)
        for (int head = 0; head < heads; ++head)
          for (int d = 0; d < pool_->format().head_dim; ++d)
            values.push_back(number(what, layer, begin + row, head, d));
      return values;
    };
    std::vector<float> q = fill(1, kToyHeads), k = fill(2, kToyShape.kv_heads), v = fill(3, kToyShape.kv_heads);
    std::vector<float> out(q.size()), lse(static_cast<size_t>(rows * kToyHeads));
    std::vector<int32_t> row_positions;
    for (int row = 0; row < rows; ++row) row_positions.push_back(begin + row);
    const KvFormat& format = pool_->format();
    const int64_t dim = format.head_dim;
    auto tensor = [&](std::vector<float>& data, int64_t heads) {
      return Tensor(data.data(), DType::kF32, {rows, heads, dim});
    };
    std::vector<KvSlot> slots;
    sequence_->tail_slots(layer, rows, slots);
    backend_->kv_write({format, pool_->slab(), slots, tensor(k, kToyShape.kv_heads), tensor(v, kToyShape.kv_heads),
                        pool_->open_slab()});
    std::vector<KvSeal> seals;
    sequence_->list_seals(layer, seals);
    if (!seals.empty())
      backend_->kv_seal({.format = format,
                         .open_slab = pool_->open_slab(),
                         .slab = pool_->slab(),
                         .pages = seals,
                         .aux = pool_->aux_slab()});
    AttentionPlan plan;
    for (int head = 0; head < kToyShape.kv_heads; ++head) {
      const int step = format.seals ? 1 : rows;  // rows of a tile read the same form of a page
      for (int row = 0; row < rows; row += step) {
        AttentionTile tile{.row_begin = row, .row_end = row + step, .kv_head = head};
        tile.page_begin = static_cast<uint32_t>(plan.pages.size());
        sequence_->list_pages(layer, head, 0, sequence_->pages(layer, head), plan.pages,
                              sequence_->slots_before(layer, head, begin + row));
        tile.page_end = static_cast<uint32_t>(plan.pages.size());
        plan.tiles.push_back(tile);
      }
    }
    AttentionArgs args;
    args.format = format;
    args.slab = pool_->slab();
    args.open_slab = pool_->open_slab();
    args.aux = pool_->aux_slab();
    args.plan = &plan;
    args.q = tensor(q, kToyHeads);
    args.positions = Tensor(row_positions.data(), DType::kI32, {rows});
    args.kv_heads = kToyShape.kv_heads;
    args.scale = static_cast<float>(kScale);
    args.partial = {tensor(out, kToyHeads), Tensor(lse.data(), DType::kF32, {rows, kToyHeads})};
    backend_->attention(args);
    retention_->attended(layer, args);
  }

  static std::shared_ptr<const KvRetentionRules> rules_of(const KvRetentionOptions& options, const KvFormat& format) {
    auto rules = KvRetentionRules::make(options, kToyShape, format, kToyHeads);
    EXPECT_TRUE(rules.has_value()) << options.policy << ": " << rules.error().message;
    return *rules;
  }

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const KvRetentionRules> rules_;
  std::shared_ptr<KvPool> pool_;
  std::unique_ptr<KvSequence> sequence_;
  std::unique_ptr<KvRetention> retention_;
};

// Each policy with settings that make it work on short texts; `duo` gets a file of gates.
std::vector<std::string> policy_specs();

}  // namespace godwit::kv_test
