// The helpers of attention_testing.h.
#include "backend/cpu/attention_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/kv_codes.h"
#include "tensor/half.h"

namespace godwit::testing {
namespace {

float rounded(float value, DType dtype) {
  if (dtype == DType::kF16) return f16_to_float(float_to_f16(value));
  if (dtype == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

// What is read of `values` after they were written.
void store_and_load(std::vector<float>& values, DType dtype, int bits) {
  std::vector<uint8_t> codes(values.size());
  const KvCodeScale scale = bits == 0 ? KvCodeScale{} : kv_encode(bits, values.data(), values.size(), codes.data());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = bits == 0 ? rounded(values[i], dtype) : kv_code_number(bits, codes[i], scale);
}

std::vector<float> normal_values(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

std::unique_ptr<Backend> cpu_backend(const std::string& simd, int threads) {
  auto backend = make_cpu_backend({threads, simd});
  EXPECT_TRUE(backend.has_value());
  return std::move(*backend);
}

std::vector<std::string> all_targets() {
  const auto simd = cpu_simd_targets();
  std::vector<std::string> names(simd.begin(), simd.end());
  if (make_cpu_backend({1, "AMX_EMULATED"}).has_value()) names.emplace_back("AMX_EMULATED");
  names.emplace_back("reference");
  return names;
}

std::vector<KvFormat> code_formats(int head_dim, int page_tokens) {
  std::vector<KvFormat> formats;
  for (int k_bits : {8, 4})
    for (int v_bits : {8, 4})
      if (head_dim % 32 == 0 || (k_bits == 8 && v_bits == 8))
        formats.push_back({DType::kF16, head_dim, page_tokens, k_bits, v_bits});
  return formats;
}

std::string format_name(const KvFormat& format) {
  return fmt::format(
      "{} head_dim {} page {}",
      format.has_codes() ? fmt::format("k{}v{}", format.k_bits, format.v_bits) : dtype_name(format.dtype),
      format.head_dim, format.page_tokens);
}

bool multiplies_bf16(const std::string& target, DType kv) {
  return kv != DType::kF32 && (target.starts_with("AMX_") || target == "AVX512_BF16");
}

TestCache::TestCache(Backend& backend, const CacheOptions& wanted) : options(wanted) {
  const KvFormat& form = options.format;
  const int page_count = (options.tokens + form.page_tokens - 1) / form.page_tokens;
  const int total = page_count * options.kv_heads;
  std::mt19937_64 random(options.seed);
  slab = *backend.allocate(form.page_bytes() * static_cast<size_t>(total));
  std::memset(slab.data(), 0xff, slab.bytes);
  aux = *backend.allocate(form.aux_bytes() * static_cast<size_t>(total));
  std::memset(aux.data(), 0xff, aux.bytes);
  std::vector<PageId> ids(static_cast<size_t>(total));
  std::iota(ids.begin(), ids.end(), 0u);
  std::shuffle(ids.begin(), ids.end(), random);

  std::vector<int32_t> positions(static_cast<size_t>(options.tokens));
  std::iota(positions.begin(), positions.end(), 0);
  if (options.explicit_slots) {
    for (int32_t& position : positions) position = position * 3 + static_cast<int32_t>(random() % 3);
    std::shuffle(positions.begin(), positions.end(), random);
  }
  const auto dim = static_cast<size_t>(form.head_dim), tokens = static_cast<size_t>(form.page_tokens);
  for (int head = 0; head < options.kv_heads; ++head) {
    auto& head_slots = slots.emplace_back();
    auto& head_refs = refs.emplace_back();
    for (int t = 0; t < options.tokens; ++t) {
      const auto at = static_cast<size_t>(t);
      Slot slot{positions[at], 0, normal_values(random, dim), normal_values(random, dim)};
      if (t % form.page_tokens == 0) {
        const auto index = static_cast<size_t>(head * page_count) + head_refs.size();
        head_refs.push_back({ids[index], static_cast<uint32_t>(head_refs.size()), options.explicit_slots ? -1 : t, 0,
                             options.explicit_slots ? static_cast<uint32_t>(index) : kNoAux});
      }
      PageRef& ref = head_refs.back();
      const KvSlot place{ref.page, ref.count++};
      if (options.explicit_slots) {
        slot.bias = std::log(static_cast<float>(1 + random() % 5));
        std::byte* data = aux.data() + ref.aux * form.aux_bytes();
        reinterpret_cast<int32_t*>(data)[place.slot] = slot.position;
        reinterpret_cast<float*>(data)[tokens + place.slot] = slot.bias;
      }
      const Tensor k(slot.k.data(), DType::kF32, {1, 1, form.head_dim}),
          v(slot.v.data(), DType::kF32, {1, 1, form.head_dim});
      backend.kv_write({form, slab.data(), {&place, 1}, k, v});
      store_and_load(slot.k, form.dtype, form.k_bits);
      store_and_load(slot.v, form.dtype, form.v_bits);
      head_slots.push_back(std::move(slot));
    }
  }
}

AttentionPlan TestCache::plan(int rows, int tile_rows, int page_begin, int page_end) const {
  AttentionPlan plan;
  for (int head = 0; head < options.kv_heads; ++head) {
    const auto& pages = refs[static_cast<size_t>(head)];
    const auto begin = static_cast<uint32_t>(plan.pages.size());
    plan.pages.insert(plan.pages.end(), pages.begin() + page_begin, pages.begin() + page_end);
    for (int row = 0; row < rows; row += tile_rows)
      plan.tiles.push_back(
          {row, std::min(rows, row + tile_rows), head, begin, static_cast<uint32_t>(plan.pages.size())});
  }
  return plan;
}

Queries::Queries(const TestCache& cache, int row_count, int head_count, uint64_t seed)
    : rows(row_count),
      q_heads(head_count),
      head_dim(cache.format().head_dim),
      scale(1.5f / std::sqrt(static_cast<float>(head_dim))) {
  std::mt19937_64 random(seed);
  q = normal_values(random, static_cast<size_t>(rows * q_heads * head_dim));
  const int last = cache.options.explicit_slots ? cache.options.tokens * 3 : cache.options.tokens;
  for (int row = 0; row < rows; ++row) positions.push_back(last - rows + row);
}

bool Answer::operator==(const Answer& other) const {
  return out.size() == other.out.size() && lse.size() == other.lse.size() &&
         std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0 &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

AttnPartial partial_of(const Queries& queries, Answer& answer) {
  return {Tensor(answer.out.data(), DType::kF32, {queries.rows, queries.q_heads, queries.head_dim}),
          Tensor(answer.lse.data(), DType::kF32, {queries.rows, queries.q_heads})};
}

AttentionArgs attention_args(const TestCache& cache, Queries& queries, const AttentionPlan& plan, Answer& answer) {
  answer.out.assign(queries.q.size(), std::numeric_limits<float>::quiet_NaN());
  answer.lse.assign(static_cast<size_t>(queries.rows * queries.q_heads), std::numeric_limits<float>::quiet_NaN());
  AttentionArgs args;
  args.format = cache.format();
  args.slab = cache.slab.data();
  args.aux = cache.aux.data();
  args.plan = &plan;
  args.q = Tensor(queries.q.data(), DType::kF32, {queries.rows, queries.q_heads, queries.head_dim});
  args.positions = Tensor(queries.positions.data(), DType::kI32, {queries.rows});
  args.kv_heads = cache.options.kv_heads;
  args.scale = queries.scale;
  args.softcap = queries.softcap;
  args.window = queries.window;
  args.partial = partial_of(queries, answer);
  return args;
}

Answer attend(Backend& backend, const TestCache& cache, const Queries& queries, const AttentionPlan& plan) {
  Answer answer;
  Queries copy = queries;
  backend.attention(attention_args(cache, copy, plan, answer));
  return answer;
}

Answer attend_fp64(const TestCache& cache, const Queries& queries) {
  Answer answer;
  const auto dim = static_cast<size_t>(queries.head_dim);
  const int group = queries.q_heads / cache.options.kv_heads;
  for (int row = 0; row < queries.rows; ++row) {
    const int64_t position = queries.positions[static_cast<size_t>(row)];
    for (int head = 0; head < queries.q_heads; ++head) {
      const float* q = queries.q.data() + static_cast<size_t>(row * queries.q_heads + head) * dim;
      std::vector<double> total(dim, 0.0);
      double sum = 0;
      for (const auto& slot : cache.slots[static_cast<size_t>(head / group)]) {
        if (slot.position > position) continue;
        if (queries.window > 0 && position - slot.position >= queries.window) continue;
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * slot.k[d];
        score *= queries.scale;
        if (queries.softcap > 0) score = queries.softcap * std::tanh(score / queries.softcap);
        const double weight = std::exp(score + slot.bias);  // scores are small here: no maximum needed in fp64
        sum += weight;
        for (size_t d = 0; d < dim; ++d) total[d] += weight * slot.v[d];
      }
      for (double value : total) answer.out.push_back(sum > 0 ? static_cast<float>(value / sum) : 0.0f);
      answer.lse.push_back(static_cast<float>(std::log(sum)));
    }
  }
  return answer;
}

Answer attend_fp64_of_bf16(const TestCache& cache, const Queries& queries) {
  TestCache rounded_cache = cache;
  for (auto& head : rounded_cache.slots)
    for (auto& slot : head)
      if (!cache.format().has_codes())
        for (std::vector<float>* values : {&slot.k, &slot.v})
          for (float& value : *values) value = rounded(value, DType::kBF16);
  Queries rounded_queries = queries;
  for (float& value : rounded_queries.q) value = rounded(value * queries.scale, DType::kBF16);
  rounded_queries.scale = 1;
  return attend_fp64(rounded_cache, rounded_queries);
}

void expect_near(const Answer& got, const Answer& want, float tolerance) {
  ASSERT_EQ(got.out.size(), want.out.size());
  ASSERT_EQ(got.lse.size(), want.lse.size());
  float largest = 0;
  for (float value : want.out) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.out.size(); ++i)
    ASSERT_LE(std::abs(got.out[i] - want.out[i]), tolerance * std::max(largest, 1e-3f))
        << "element " << i << ": " << got.out[i] << " instead of " << want.out[i];
  for (size_t i = 0; i < got.lse.size(); ++i) {
    if (std::isinf(want.lse[i])) {
      ASSERT_EQ(got.lse[i], want.lse[i]) << "lse " << i;
    } else {
      ASSERT_LE(std::abs(got.lse[i] - want.lse[i]), tolerance * (1 + std::abs(want.lse[i]))) << "lse " << i;
    }
  }
}

}  // namespace godwit::testing
