// Sequence, plan and the CPU's kernels together: attention over what a sequence still holds equals attention computed
// in double precision over a plain list of the same slots, whatever was appended, forked, truncated, dropped or merged.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "backend/kv_codes_testing.h"
#include "kv/codec.h"

namespace godwit {
namespace {

struct PlainSlot {
  int32_t position;
  float bias;
  std::vector<float> k, v;
};
using PlainHead = std::vector<PlainSlot>;

struct Numbers {
  std::vector<float> out, lse;
};

struct Setting {
  std::string codec = "f32";
  int kv_heads = 2, group = 2, head_dim = 32;
  int32_t window = 0;
  float softcap = 0;
};

class Fixture {
 public:
  Fixture(const Setting& setting, uint32_t seed)
      : setting_(setting), backend_(make_guarded_backend({.threads = 2, .simd = {}}).value()), random_(seed) {
    KvFormat format = make_kv_format(setting.codec, setting.head_dim).value();
    pool_ = KvPool::create(*backend_, format, 2000 * format.page_bytes()).value();
  }

  std::unique_ptr<KvSequence> make() {
    return std::make_unique<KvSequence>(*pool_, KvShape{.layers = 1, .kv_heads = setting_.kv_heads});
  }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  // Eighths up to 2: exact in every plain format.
  std::vector<float> draw(size_t n) {
    std::vector<float> x(n);
    for (float& value : x) value = static_cast<float>(below(33) - 16) / 8.0f;
    return x;
  }

  // Appends tokens with the given K and V, [tokens, kv_heads, head_dim].
  void append(KvSequence& sequence, int tokens, const std::vector<float>& k, const std::vector<float>& v) {
    ASSERT_TRUE(sequence.append(tokens));
    std::vector<KvSlot> slots;
    sequence.tail_slots(0, tokens, slots);
    Buffer k_memory = device(k), v_memory = device(v);
    backend_->kv_write({.format = pool_->format(),
                        .slab = pool_->slab(),
                        .slots = slots,
                        .k = Tensor(k_memory.data(), DType::kF32, {tokens, setting_.kv_heads, setting_.head_dim}),
                        .v = Tensor(v_memory.data(), DType::kF32, {tokens, setting_.kv_heads, setting_.head_dim})});
  }
  void append(KvSequence& sequence, std::vector<PlainHead>& plain, int tokens) {
    const size_t width = static_cast<size_t>(setting_.head_dim), heads = static_cast<size_t>(setting_.kv_heads);
    std::vector<float> k = draw(static_cast<size_t>(tokens) * heads * width), v = draw(k.size());
    const int32_t first = sequence.next_position();
    append(sequence, tokens, k, v);
    plain.resize(heads);
    for (size_t row = 0; row < static_cast<size_t>(tokens) * heads; ++row) {
      auto part = [&](const std::vector<float>& x) {
        return std::vector<float>(&x[row * width], &x[row * width] + width);
      };
      const KvFormat& format = pool_->format();
      plain[row % heads].push_back({first + static_cast<int32_t>(row / heads), 0, as_stored(part(k), format.k_bits),
                                    as_stored(part(v), format.v_bits)});
    }
  }

  Numbers attend(std::span<const AttentionSegment> segments, const std::vector<float>& q) {
    const int64_t rows = segments.back().row_end, heads = q_heads();
    std::vector<int32_t> positions;
    for (const AttentionSegment& segment : segments)
      for (int32_t row = segment.row_begin; row < segment.row_end; ++row)
        positions.push_back(segment.first_position + row - segment.row_begin);
    const AttentionPlan plan = dense_plan({.layer = 0, .window = setting_.window, .segments = segments});
    Numbers result{std::vector<float>(q.size()), std::vector<float>(static_cast<size_t>(rows * heads))};
    Buffer q_memory = device(q), position_memory = device(positions);
    Buffer out = device(result.out), lse = device(result.lse);
    backend_->attention({.format = pool_->format(),
                         .slab = pool_->slab(),
                         .aux = pool_->aux_slab(),
                         .plan = &plan,
                         .q = Tensor(q_memory.data(), DType::kF32, {rows, heads, setting_.head_dim}),
                         .positions = Tensor(position_memory.data(), DType::kI32, {rows}),
                         .kv_heads = setting_.kv_heads,
                         .scale = scale(),
                         .softcap = setting_.softcap,
                         .window = setting_.window,
                         .partial = {Tensor(out.data(), DType::kF32, {rows, heads, setting_.head_dim}),
                                     Tensor(lse.data(), DType::kF32, {rows, heads})}});
    backend_->download(std::as_writable_bytes(std::span(result.out)), out.data());
    backend_->download(std::as_writable_bytes(std::span(result.lse)), lse.data());
    return result;
  }

  // One query at one position, by the definition.
  void expect_row(const PlainHead& slots, int32_t position, const float* q, const float* out, float lse) {
    const auto width = static_cast<size_t>(setting_.head_dim);
    std::vector<double> sum(width);
    double total = 0;
    for (const PlainSlot& slot : slots) {
      if (slot.position > position || (setting_.window > 0 && position - slot.position >= setting_.window)) continue;
      double score = 0;
      for (size_t d = 0; d < width; ++d) score += double{q[d]} * slot.k[d];
      score *= scale();
      if (setting_.softcap > 0) score = setting_.softcap * std::tanh(score / setting_.softcap);
      const double weight = std::exp(score + slot.bias);
      total += weight;
      for (size_t d = 0; d < width; ++d) sum[d] += weight * slot.v[d];
    }
    if (total == 0) {
      EXPECT_EQ(lse, -INFINITY);
      for (size_t d = 0; d < width; ++d) EXPECT_EQ(out[d], 0);
      return;
    }
    // K and V of 16 bits may be multiplied in bf16.
    const double tolerance = setting_.codec == "f32" ? 2e-5 : 1e-2;
    EXPECT_NEAR(lse, std::log(total), tolerance);
    for (size_t d = 0; d < width; ++d) ASSERT_NEAR(out[d], sum[d] / total, tolerance);
  }

  int64_t q_heads() const { return setting_.kv_heads * setting_.group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(setting_.head_dim)); }
  const Setting& setting() const { return setting_; }
  KvPool& pool() { return *pool_; }

 private:
  template <class T>
  Buffer device(const std::vector<T>& numbers) {
    Buffer buffer = backend_->allocate(numbers.size() * sizeof(T)).value();
    backend_->upload(buffer.data(), std::as_bytes(std::span(numbers)));
    return buffer;
  }

  Setting setting_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::mt19937 random_;
};

// Drops random slots of each head (one head of many keeps little) and gives some of the rest a bias.
void thin(Fixture& f, KvSequence& sequence, std::vector<PlainHead>& plain) {
  for (int head = 0; head < f.setting().kv_heads; ++head) {
    PlainHead& slots = plain[static_cast<size_t>(head)];
    const int share = 1 + f.below(7);
    std::vector<uint32_t> dropped, biased;
    std::vector<float> biases;
    PlainHead left;
    for (uint32_t i = 0; i < slots.size(); ++i) {
      if (i > 3 && f.below(8) >= share) {
        dropped.push_back(i);
      } else {
        left.push_back(slots[i]);
      }
    }
    ASSERT_TRUE(sequence.drop(0, head, dropped));
    slots = std::move(left);
    for (uint32_t i = 0; i < slots.size(); i += 1 + static_cast<uint32_t>(f.below(40))) {
      biased.push_back(i);
      biases.push_back(std::log(static_cast<float>(1 + f.below(5))));
      slots[i].bias = biases.back();
    }
    ASSERT_TRUE(sequence.set_biases(0, head, biased, biases));
  }
}

void check(const Setting& setting, uint32_t seed) {
  Fixture f(setting, seed);
  auto a = f.make();
  std::vector<PlainHead> plain_a;
  f.append(*a, plain_a, 900);
  auto b = a->fork();
  std::vector<PlainHead> plain_b = plain_a;
  thin(f, *b, plain_b);
  f.append(*b, plain_b, 333);
  thin(f, *b, plain_b);
  b->truncate(1200);
  for (PlainHead& head : plain_b) std::erase_if(head, [](const PlainSlot& slot) { return slot.position >= 1200; });
  f.append(*b, plain_b, 70);
  f.append(*a, plain_a, 300);

  // Part of a prefill chunk of b, a decode of a, and the first row of all.
  const AttentionSegment segments[] = {{b.get(), 0, 37, 1230}, {a.get(), 37, 38, 1199}, {a.get(), 38, 39, 0}};
  const auto width = static_cast<size_t>(setting.head_dim), heads = static_cast<size_t>(f.q_heads());
  const std::vector<float> q = f.draw(39 * heads * width);
  const Numbers got = f.attend(segments, q);
  for (const AttentionSegment& segment : segments) {
    const auto& plain = segment.sequence == a.get() ? plain_a : plain_b;
    for (int32_t row = segment.row_begin; row < segment.row_end; ++row) {
      for (size_t head = 0; head < heads; ++head) {
        const size_t at = static_cast<size_t>(row) * heads + head;
        f.expect_row(plain[head / static_cast<size_t>(setting.group)], segment.first_position + row - segment.row_begin,
                     &q[at * width], &got.out[at * width], got.lse[at]);
      }
    }
  }
  EXPECT_TRUE(a->check_integrity());
  EXPECT_TRUE(b->check_integrity());
  EXPECT_TRUE(f.pool().check_integrity());
}

TEST(AttentionOverSequence, EqualsTheDefinitionOnWhatIsLeft) {
  uint32_t seed = 0;
  for (const char* codec : {"f32", "f16", "bf16", "q8", "q4", "q4:k=8"}) check({.codec = codec}, ++seed);
  check({.kv_heads = 1, .group = 4, .head_dim = 64, .window = 100}, ++seed);
  check({.codec = "f16", .kv_heads = 3, .group = 1, .head_dim = 128, .softcap = 5}, ++seed);
}

// Cold equals warm, to the bit: a prefix taken over by fork and truncate, and any chunking of the rest.
TEST(AttentionOverSequence, SharedPrefixAndChunksChangeNoBit) {
  for (int32_t window : {0, 200}) {
    Fixture f({.codec = "f16", .window = window}, 3);
    const size_t row = 2 * 32;
    const std::vector<float> k = f.draw(1500 * row), v = f.draw(k.size()), q = f.draw(10 * 4 * 32);
    auto part = [&](const std::vector<float>& x, int begin, int end) {
      return std::vector<float>(x.begin() + begin * static_cast<int>(row), x.begin() + end * static_cast<int>(row));
    };
    auto extend = [&](KvSequence& sequence, int end) {
      const int begin = sequence.next_position();
      f.append(sequence, end - begin, part(k, begin, end), part(v, begin, end));
    };
    auto cold = f.make();
    extend(*cold, 1500);
    AttentionSegment segment{cold.get(), 0, 10, 1490};
    const Numbers expected = f.attend({&segment, 1}, q);

    auto warm = cold->fork();
    warm->truncate(701);
    while (warm->next_position() < 1500) extend(*warm, std::min(1500, warm->next_position() + 1 + f.below(150)));
    segment.sequence = warm.get();
    const Numbers whole = f.attend({&segment, 1}, q);
    EXPECT_EQ(whole.out, expected.out);
    EXPECT_EQ(whole.lse, expected.lse);
    for (int32_t i = 0; i < 10; ++i) {
      const AttentionSegment one{warm.get(), 0, 1, 1490 + i};
      const std::vector<float> query(q.begin() + i * 128, q.begin() + (i + 1) * 128);
      const Numbers got = f.attend({&one, 1}, query);
      EXPECT_TRUE(std::equal(got.out.begin(), got.out.end(), expected.out.begin() + i * 128)) << "row " << i;
      EXPECT_TRUE(std::equal(got.lse.begin(), got.lse.end(), expected.lse.begin() + i * 4)) << "row " << i;
    }
  }
}

}  // namespace
}  // namespace godwit
