// For the tests of attention: a cache with known contents, plans over it, and attention in fp64 straight from the
// formula.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace godwit::testing {

std::unique_ptr<Backend> cpu_backend(const std::string& simd, int threads = 1);
std::vector<std::string> all_targets();  // SIMD targets of this machine, emulated ones, then "reference"
// Whether a target multiplies bf16 numbers when K and V are stored in `kv`.
bool multiplies_bf16(const std::string& target, DType kv);
// Formats of codes that attention reads, for heads of `head_dim` numbers.
std::vector<KvFormat> code_formats(int head_dim, int page_tokens);
std::string format_name(const KvFormat& format);  // "f16 head_dim 64 page 32", "k8v4 …"
inline std::string target_name(const ::testing::TestParamInfo<std::string>& test) {
  return test.param;
}

struct CacheOptions {
  KvFormat format;
  int kv_heads = 2;
  int tokens = 200;
  bool explicit_slots = false;  // positions with gaps, in no order, and biases, on every page
  uint64_t seed = 1;
};

// One sequence's K and V for every KV head. Pages lie scattered in the slab; whatever was never written is NaN.
class TestCache {
 public:
  struct Slot {
    int32_t position = 0;
    float bias = 0;
    std::vector<float> k, v;  // as stored, i.e. rounded to the format
  };

  TestCache(Backend& backend, const CacheOptions& options);

  // Tiles of `tile_rows` rows over pages [page_begin, page_end) of every head.
  AttentionPlan plan(int rows, int tile_rows, int page_begin, int page_end) const;
  AttentionPlan plan(int rows) const { return plan(rows, rows, 0, pages()); }

  int pages() const { return static_cast<int>(refs.front().size()); }
  const KvFormat& format() const { return options.format; }

  CacheOptions options;
  Buffer slab, aux;
  std::vector<std::vector<Slot>> slots;    // [kv_heads][tokens]
  std::vector<std::vector<PageRef>> refs;  // [kv_heads][pages]
};

struct Queries {
  Queries(const TestCache& cache, int row_count, int head_count, uint64_t seed = 7);

  int rows, q_heads, head_dim;
  float scale, softcap = 0;
  int32_t window = 0;
  std::vector<float> q;  // [rows, q_heads, head_dim]
  std::vector<int32_t> positions;
};

struct Answer {
  std::vector<float> out;                      // [rows, q_heads, head_dim]
  std::vector<float> lse;                      // [rows, q_heads]
  bool operator==(const Answer& other) const;  // bit by bit
};

AttentionArgs attention_args(const TestCache& cache, Queries& queries, const AttentionPlan& plan, Answer& answer);
Answer attend(Backend& backend, const TestCache& cache, const Queries& queries, const AttentionPlan& plan);
Answer attend_fp64(const TestCache& cache, const Queries& queries);
// The same problem as a target with bf16 operands sees it: scaled queries, K and V (but not codes) rounded to bf16.
Answer attend_fp64_of_bf16(const TestCache& cache, const Queries& queries);
AttnPartial partial_of(const Queries& queries, Answer& answer);

// Outputs within `tolerance` of the largest value, LSE within `tolerance` relative to 1 + |lse|.
void expect_near(const Answer& got, const Answer& want, float tolerance);

}  // namespace godwit::testing
