// Attention on every SIMD target and the scalar reference, against the formula in fp64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/attention_testing.h"
#include "backend/forms/gear.h"
#include "backend/forms/sorted.h"
#include "tensor/half.h"

namespace godwit::testing {
namespace {

constexpr float kTolerance = 3e-6f;
// Of bf16 arithmetic: weights are rounded to 8 bits, which costs 2^-8 of the values at worst and less in a sum of many;
// rounding the operands, too, shifts scores by some hundredths.
constexpr float kBf16Tolerance = 4e-3f, kBf16OperandTolerance = 0.04f;

class AttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void compare(const CacheOptions& options, int rows, int q_heads, int32_t window = 0, float softcap = 0) {
    SCOPED_TRACE(fmt::format("{} tokens {} rows {} heads {}/{} window {} softcap {} explicit {}",
                             format_name(options.format), options.tokens, rows, q_heads, options.kv_heads, window,
                             softcap, options.explicit_slots));
    const TestCache cache(*backend_, options);
    Queries queries(cache, rows, q_heads);
    queries.window = window;
    queries.softcap = softcap;
    const Answer got = attend(*backend_, cache, queries, cache.plan(rows));
    if (multiplies_bf16(GetParam(), options.format.dtype)) {
      expect_near(got, attend_fp64_of_bf16(cache, queries), kBf16Tolerance);
      expect_near(got, attend_fp64(cache, queries), kBf16OperandTolerance);
    } else {
      expect_near(got, attend_fp64(cache, queries), kTolerance);
    }
  }

  // Attention over a cache of f16 whose pages, all of them full, are then sealed.
  void compare_sealed(const std::shared_ptr<const PageForm>& form, int rows, int32_t window) {
    const auto dims = form->head_dim(), tokens = form->page_tokens();
    SCOPED_TRACE(fmt::format("form {} of {} x {}, {} rows, window {}", static_cast<int>(form->kind()), dims, tokens,
                             rows, window));
    const KvFormat open{DType::kF16, static_cast<int>(dims), static_cast<int>(tokens)};
    TestCache cache(*backend_, {open, 2, static_cast<int>(3 * tokens), false});
    KvFormat& format = cache.options.format;
    format.seals = true;
    format.sealed_form = form;
    cache.slab = backend_->allocate(cache.slab.bytes / open.page_bytes() * format.page_bytes()).value();
    std::vector<float> k(dims * tokens), v(dims * tokens);
    std::vector<int32_t> positions(tokens);
    for (size_t head = 0; head < 2; ++head)
      for (size_t i = 0; i < cache.slots[head].size(); i += tokens) {
        TestCache::Slot* slots = &cache.slots[head][i];
        for (size_t t = 0; t < tokens; ++t) {
          positions[t] = slots[t].position;
          for (size_t d = 0; d < dims; ++d) k[d * tokens + t] = slots[t].k[d], v[t * dims + d] = slots[t].v[d];
        }
        std::byte* page = cache.slab.data() + cache.refs[head][i / tokens].page * format.page_bytes();
        form->seal({0, positions.data()}, k.data(), v.data(), page);
        for (size_t t = 0; t < tokens; ++t)
          for (size_t d = 0; d < dims; ++d)
            slots[t].k[d] = form->key(page, t, d), slots[t].v[d] = form->value(page, t, d);
      }
    Queries queries(cache, rows, 6);
    queries.window = window;
    const AttentionPlan plan = cache.plan(rows);
    Answer got;
    AttentionArgs args = attention_args(cache, queries, plan, got);
    args.open_slab = cache.slab.data();
    backend_->attention(args);
    const bool rounds = multiplies_bf16(GetParam(), DType::kF16);
    expect_near(got, attend_fp64(cache, queries), rounds ? kBf16OperandTolerance : kTolerance);
  }

  // Writes `k` and `v` to the first slots of a cache of one head.
  void write(const TestCache& cache, std::vector<float> k, std::vector<float> v) {
    const int64_t dim = cache.format().head_dim, count = static_cast<int64_t>(k.size()) / dim;
    std::vector<KvSlot> slots;
    for (uint32_t slot = 0; slot < static_cast<uint32_t>(count); ++slot) slots.push_back({cache.refs[0][0].page, slot});
    backend_->kv_write({cache.format(), cache.slab.data(), slots, Tensor(k.data(), DType::kF32, {count, 1, dim}),
                        Tensor(v.data(), DType::kF32, {count, 1, dim})});
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam());
};

TEST_P(AttentionTest, HeadSizesAndTypes) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (int head_dim : {8, 16, 24, 32, 40, 64, 80, 96, 120, 128, 192, 256})
      for (int rows : {1, 9}) compare({{dtype, head_dim, 64}, 2, 150, false}, rows, 4);
}

TEST_P(AttentionTest, GroupsAndPageSizes) {
  for (int group : {1, 2, 3, 5, 6, 7, 8, 16, 32})
    for (int rows : {1, 5}) compare({{DType::kF16, 32, 64}, 2, 100, false}, rows, 2 * group);
  for (int page_tokens : {16, 32, 48, 112, 256})
    for (int tokens : {1, 15, 16, 17, 300}) compare({{DType::kF16, 64, page_tokens}, 1, tokens, false}, 1, 4);
}

TEST_P(AttentionTest, LongEnoughForSegments) {
  for (DType dtype : {DType::kF32, DType::kF16}) {
    compare({{dtype, 64, 64}, 1, 2500, false}, 3, 4);
    compare({{dtype, 64, 16}, 2, 1000, false}, 130, 2);
  }
}

TEST_P(AttentionTest, WindowAndSoftcap) {
  for (int32_t window : {1, 7, 64, 100, 1000})
    for (int rows : {1, 40, 190}) compare({{DType::kF16, 32, 64}, 2, 200, false}, rows, 4, window);
  for (float softcap : {0.5f, 5.0f, 50.0f}) compare({{DType::kF32, 64, 64}, 2, 200, false}, 20, 4, 0, softcap);
  compare({{DType::kBF16, 64, 64}, 2, 200, false}, 20, 4, 30, 5.0f);
}

TEST_P(AttentionTest, ExplicitPositionsAndBias) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (int rows : {1, 3, 150})
      for (int32_t window : {0, 50, 300}) compare({{dtype, 40, 32}, 2, 150, true}, rows, 4, window);
  compare({{DType::kF16, 64, 64}, 2, 150, true}, 30, 4, 100, 5.0f);
}

TEST_P(AttentionTest, Codes) {
  for (int head_dim : {8, 24, 32, 64, 120, 128, 256})
    for (const KvFormat& format : code_formats(head_dim, 64))
      for (int rows : {1, 9}) compare({format, 2, 150, false}, rows, 4);
  for (int page_tokens : {16, 32, 48, 256})
    for (const KvFormat& format : code_formats(32, page_tokens))
      for (int tokens : {1, 15, 17, 300}) compare({format, 1, tokens, false}, 1, 4);
  for (const KvFormat& format : code_formats(64, 32)) {
    for (int32_t window : {7, 100}) compare({format, 2, 200, false}, 40, 4, window);
    compare({format, 2, 200, false}, 20, 4, 30, 5.0f);
    compare({format, 1, 1200, false}, 130, 6);
    for (int32_t window : {0, 50}) compare({format, 2, 150, true}, 30, 4, window);
  }
}

// Several pages, as no other test of sealed ones has: what one leaves to be done with the next.
TEST_P(AttentionTest, Forms) {
  for (size_t dims : {32, 64, 96, 256}) {
    const size_t tokens = dims == 64 ? 128 : 64;
    std::vector<std::shared_ptr<const PageForm>> forms;
    for (size_t rank : {0, 3}) {
      const int bits = dims % 64 == 0 ? 2 : 4;
      const GearOptions options{.k_bits = bits, .v_bits = 4, .rank = rank, .extremes = rank};
      forms.push_back(std::make_shared<GearForm>(dims, tokens, options));
    }
    for (const int bits : {4, 8}) {
      const SortedOptions options{.k_bits = bits, .v_bits = 12 - bits, .sorts = bits == 4};
      forms.push_back(std::make_shared<SortedForm>(dims, tokens, options));
    }
    for (const auto& form : forms) {
      compare_sealed(form, 1, 0);
      compare_sealed(form, 40, 70);
    }
  }
}

TEST_P(AttentionTest, ScoresFarApart) {
  const TestCache cache(*backend_, {{DType::kF32, 64, 64}, 1, 1500, false});
  Queries queries(cache, 4, 2);
  for (float scale : {-12.0f, 3.0f, 12.0f}) {  // one slot takes nearly all; others underflow
    queries.scale = scale;
    expect_near(attend(*backend_, cache, queries, cache.plan(4)), attend_fp64(cache, queries), 1e-4f);
  }
}

TEST_P(AttentionTest, NothingVisibleIsTheEmptyPartial) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 64}, 2, 100, false});
  Queries queries(cache, 3, 4);
  queries.positions = {-1, 5, 2000};
  queries.window = 500;  // row 0 is before all, row 2 long after
  AttentionPlan plan = cache.plan(3);
  for (int covered : {2, 1, 0}) {  // tiles of both heads, of one, of none
    plan.tiles.resize(static_cast<size_t>(covered));
    const Answer answer = attend(*backend_, cache, queries, plan);
    const size_t row = answer.out.size() / 3;
    for (size_t i = 0; i < answer.out.size(); ++i) {
      const size_t kv_head = i % row / (row / 2);
      const bool seen = i / row == 1 && static_cast<int>(kv_head) < covered;
      ASSERT_TRUE(seen || answer.out[i] == 0.0f) << i;
      ASSERT_EQ(std::isinf(answer.lse[i / 32]), !seen) << i;
    }
  }
}

TEST_P(AttentionTest, MergedTwinsKeepTheirWeight) {
  // Slots 2i and 2i + 1 hold the same K and V; one slot with bias log 2 stands for both.
  CacheOptions options{{DType::kF32, 32, 16}, 1, 64, true};
  TestCache twins(*backend_, options), merged(*backend_, options);
  options.tokens = 32;
  for (size_t t = 0; t < 64; ++t) {
    const size_t source = t / 2;
    auto& slot = twins.slots[0][t] = merged.slots[0][source];
    slot.position = static_cast<int32_t>(source);
    slot.bias = 0;
  }
  merged.slots[0].resize(32);
  merged.refs[0].resize(2);
  auto store = [&](TestCache& cache, float bias) {
    for (size_t t = 0; t < cache.slots[0].size(); ++t) {
      auto& slot = cache.slots[0][t];
      const PageRef& ref = cache.refs[0][t / 16];
      const KvSlot place{ref.page, static_cast<uint32_t>(t % 16)};
      const Tensor k(slot.k.data(), DType::kF32, {1, 1, 32}), v(slot.v.data(), DType::kF32, {1, 1, 32});
      backend_->kv_write({cache.format(), cache.slab.data(), {&place, 1}, k, v});
      auto* positions = reinterpret_cast<int32_t*>(cache.aux.data() + ref.aux * cache.format().aux_bytes());
      positions[place.slot] = slot.position;
      reinterpret_cast<float*>(positions + 16)[place.slot] = bias;
    }
  };
  for (size_t t = 0; t < 32; ++t) merged.slots[0][t].position = static_cast<int32_t>(t);
  store(twins, 0.0f);
  store(merged, std::log(2.0f));
  Queries queries(twins, 5, 2);
  queries.positions = {0, 3, 16, 30, 31};
  expect_near(attend(*backend_, merged, queries, merged.plan(5)), attend(*backend_, twins, queries, twins.plan(5)),
              kTolerance);
}

TEST_P(AttentionTest, StridedRows) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 64}, 2, 100, false});
  Queries queries(cache, 3, 4);
  const AttentionPlan plan = cache.plan(3);
  const Answer want = attend(*backend_, cache, queries, plan);
  std::vector<float> wide_q(3 * 300, std::numeric_limits<float>::quiet_NaN()), wide_out(3 * 200, -7.0f);
  for (size_t row = 0; row < 3; ++row) std::copy_n(queries.q.data() + row * 128, 128, wide_q.data() + row * 300);
  Answer answer;
  AttentionArgs args = attention_args(cache, queries, plan, answer);
  args.q.data = reinterpret_cast<std::byte*>(wide_q.data());
  args.q.row_stride_bytes = 300 * sizeof(float);
  args.partial.out.data = reinterpret_cast<std::byte*>(wide_out.data());
  args.partial.out.row_stride_bytes = 200 * sizeof(float);
  backend_->attention(args);
  for (size_t row = 0; row < 3; ++row) {
    std::copy_n(wide_out.data() + row * 200, 128, answer.out.data() + row * 128);
    for (size_t i = 128; i < 200; ++i) ASSERT_EQ(wide_out[row * 200 + i], -7.0f);
  }
  EXPECT_EQ(answer, want);
}

// Two slots with scores 0 and x: the second's weight is exp(x) / (1 + exp(x)), to a few units in the last place.
TEST_P(AttentionTest, WeightsAreAccurateFarBelowTheMaximum) {
  for (DType dtype : {DType::kF32, DType::kF16}) {
    TestCache cache(*backend_, {{dtype, 8, 16}, 1, 2, true});
    std::vector<float> values(16, 0.0f);
    std::fill_n(values.begin() + 8, 8, 1.0f);
    write(cache, std::vector<float>(16, 0.0f), values);
    auto* bias = reinterpret_cast<float*>(cache.aux.data()) + 16;
    bias[0] = 0;
    const Queries queries(cache, 1, 1);
    const double tolerance = multiplies_bf16(GetParam(), dtype) ? 0x1p-8 : 4e-7;
    for (int i = 0; i <= 4400; ++i) {
      bias[1] = -static_cast<float>(i) * 0.0199f;
      const Answer answer = attend(*backend_, cache, queries, cache.plan(1));
      const double want = 1 / (1 + std::exp(-static_cast<double>(bias[1])));
      if (bias[1] < -87.3f) {
        ASSERT_LE(answer.out[0], 1.3e-38f);
      } else {
        ASSERT_NEAR(answer.out[0] / want, 1, tolerance) << bias[1];
      }
    }
    bias[1] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(attend(*backend_, cache, queries, cache.plan(1)).out[0], 0.0f);
  }
}

// With one slot the LSE is its score: cap * tanh(score / cap). Scores are bf16 numbers, so that none is rounded.
TEST_P(AttentionTest, SoftcapIsAccurate) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TestCache cache(*backend_, {{dtype, 8, 16}, 1, 1, false});
    Queries queries(cache, 1, 1);
    queries.scale = 1;
    queries.softcap = 30;
    std::vector<float> key(8, 0.0f);
    queries.q.assign(8, 0.0f);
    queries.q[0] = 1;
    for (double score = 1e-6; score < 1e5; score *= 1.07)
      for (float sign : {1.0f, -1.0f}) {
        key[0] = bf16_to_float(float_to_bf16(sign * static_cast<float>(score)));
        write(cache, key, key);
        const double want = 30 * std::tanh(static_cast<double>(key[0]) / 30);
        ASSERT_NEAR(attend(*backend_, cache, queries, cache.plan(1)).lse[0] / want, 1,
                    multiplies_bf16(GetParam(), dtype) ? 5e-5 : 1e-6)
            << key[0];
      }
  }
}

TEST_P(AttentionTest, NanStaysVisible) {
  const TestCache cache(*backend_, {{DType::kF16, 32, 16}, 1, 40, false});
  Queries queries(cache, 2, 2);
  queries.q[0] = std::numeric_limits<float>::quiet_NaN();  // row 0, head 0
  const Answer answer = attend(*backend_, cache, queries, cache.plan(2));
  for (size_t i = 0; i < answer.out.size(); ++i) ASSERT_EQ(std::isnan(answer.out[i]), i < 32) << i;
  EXPECT_TRUE(std::isnan(answer.lse[0]));
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
