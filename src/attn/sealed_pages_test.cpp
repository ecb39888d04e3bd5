// Sequences whose pages are sealed: which form of a page a row reads follows from positions alone, so attention equals
// the definition on what the codes hold, and no bit depends on how tokens came.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "attn/dense.h"
#include "backend/kv_codes.h"
#include "kv/codec.h"
#include "kv/codec_tables_testing.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr int kDim = 64, kKvHeads = 2, kHeads = 4, kPage = 64;
constexpr size_t kRow = size_t{kKvHeads} * kDim;

struct Numbers {
  std::vector<float> out, lse;
};

std::vector<float> draw(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = f16_to_float(float_to_f16(normal(random)));
  return x;
}

std::vector<float> through_codes(std::vector<float> numbers, int bits) {
  std::vector<uint8_t> codes(numbers.size());
  const KvCodeScale scale = kv_encode(bits, numbers.data(), numbers.size(), codes.data());
  for (size_t i = 0; i < codes.size(); ++i) numbers[i] = kv_code_number(bits, codes[i], scale);
  return numbers;
}

// The `keep` numbers of largest magnitude; of equals the first.
std::vector<float> pruned(const std::vector<float>& numbers, int keep) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(numbers[a]) > std::abs(numbers[b]); });
  std::vector<float> kept(numbers.size());
  for (size_t i = 0; i < static_cast<size_t>(keep); ++i) kept[order[i]] = numbers[order[i]];
  return kept;
}

// K and V of `tokens` tokens, [token, kv_head, dim], and what their codes hold once sealed.
struct Text {
  Text(const KvFormat& format, int count, uint32_t seed)
      : tokens(count),
        k(draw(static_cast<size_t>(count) * kRow, seed)),
        v(draw(k.size(), seed + 1)),
        sealed_k(k),
        sealed_v(v) {
    if (format.sealed_form) {
      seal(*format.sealed_form);
      return;
    }
    for (size_t line = 0; line < k.size(); line += kDim) {
      const std::vector<float> token_k(k.begin() + at(line), k.begin() + at(line + kDim));
      const std::vector<float> token_v(v.begin() + at(line), v.begin() + at(line + kDim));
      if (format.is_sparse()) {
        copy_line(pruned(token_k, format.k_keep), sealed_k, line, 1);
        copy_line(pruned(token_v, format.v_keep), sealed_v, line, 1);
        continue;
      }
      copy_line(through_codes(token_v, format.v_bits), sealed_v, line, 1);
      if (!format.k_by_dim) copy_line(through_codes(token_k, format.k_bits), sealed_k, line, 1);
    }
    if (!format.k_by_dim) return;
    for (size_t page = 0; (page + 1) * kPage * kRow <= k.size(); ++page)
      for (size_t dim = 0; dim < kRow; ++dim) {
        std::vector<float> line;
        for (size_t t = 0; t < kPage; ++t) line.push_back(k[(page * kPage + t) * kRow + dim]);
        copy_line(through_codes(line, format.k_bits), sealed_k, page * kPage * kRow + dim, kRow);
      }
  }
  // By the form's scalar reference, each KV head with its table.
  void seal(const PageForm& form) {
    std::vector<std::byte> bytes(form.k_bytes() + form.v_bytes());
    std::vector<float> page_k(size_t{kPage} * kDim), page_v(page_k.size());
    for (size_t page = 0; (page + 1) * kPage * kRow <= k.size(); ++page)
      for (size_t head = 0; head < kKvHeads; ++head) {
        const auto place = [&](size_t t, size_t d) { return (page * kPage + t) * kRow + head * kDim + d; };
        for (size_t t = 0; t < kPage; ++t)
          for (size_t d = 0; d < kDim; ++d)
            page_k[d * kPage + t] = k[place(t, d)], page_v[t * kDim + d] = v[place(t, d)];
        std::vector<int32_t> positions(kPage);
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(page * kPage));
        form.seal({static_cast<uint32_t>(head), positions.data()}, page_k.data(), page_v.data(), bytes.data());
        for (size_t t = 0; t < kPage; ++t)
          for (size_t d = 0; d < kDim; ++d) {
            sealed_k[place(t, d)] = form.key(bytes.data(), t, d);
            sealed_v[place(t, d)] = form.value(bytes.data(), t, d);
          }
      }
  }
  static ptrdiff_t at(size_t i) { return static_cast<ptrdiff_t>(i); }
  static void copy_line(const std::vector<float>& from, std::vector<float>& to, size_t begin, size_t step) {
    for (size_t i = 0; i < from.size(); ++i) to[begin + i * step] = from[i];
  }

  int tokens;
  std::vector<float> k, v, sealed_k, sealed_v;
};

class SealedPages : public ::testing::TestWithParam<std::string> {
 protected:
  void use(const std::string& simd, int threads = 2) {
    pool_.reset();
    backend_ = make_guarded_backend({.threads = threads, .simd = simd}).value();
    format_ = make_kv_format(with_file(GetParam()), kDim).value();
    pool_ = KvPool::create(*backend_, format_, 200 * format_.open_format().page_bytes()).value();
  }
  // FILE becomes the name of a side file for the two KV heads.
  static std::string with_file(std::string spec) {
    const size_t at = spec.find("FILE");
    if (at == std::string::npos) return spec;
    const std::string codec = spec.substr(0, spec.find(':'));
    const std::string path = testing::TempDir() + "sealed_pages_" + codec + ".gguf";
    if (codec == "xquant") {
      EXPECT_TRUE(write_xquant_file({.heads = kKvHeads, .head_dim = kDim, .rotary_dim = 48, .pairs = 1}, path));
    } else if (codec == "million") {
      const size_t book = size_t{kKvHeads} * kDim * 256;
      EXPECT_TRUE(write_codec_tables(
          "million", "a test", {{"width", 2}},
          {{"k", {kKvHeads, kDim, 256}, draw(book, 21)}, {"v", {kKvHeads, kDim, 256}, draw(book, 22)}}, path));
    } else {
      std::vector<float> squares = draw(kRow, 23);
      for (float& x : squares) x = x * x;
      EXPECT_TRUE(write_codec_tables("think", "a test", {}, {{"queries", {kKvHeads, kDim}, squares}}, path));
    }
    return spec.replace(at, 4, path);
  }
  std::unique_ptr<KvSequence> make() {
    return std::make_unique<KvSequence>(*pool_, KvShape{.layers = 1, .kv_heads = kKvHeads});
  }
  Buffer device(std::span<const std::byte> bytes) {
    Buffer buffer = backend_->allocate(bytes.size()).value();
    backend_->upload(buffer.data(), bytes);
    return buffer;
  }

  // Appends the tokens of `text` up to `end` as one step and attends with their queries.
  Numbers step(KvSequence& sequence, const Text& text, int end, const std::vector<float>& q) {
    const int begin = sequence.next_position(), rows = end - begin;
    EXPECT_TRUE(sequence.append(rows));
    std::vector<KvSlot> slots;
    sequence.tail_slots(0, rows, slots);
    auto part = [&](const std::vector<float>& x, size_t width) {
      return std::as_bytes(std::span(x).subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(rows) * width));
    };
    Buffer k = device(part(text.k, kRow)), v = device(part(text.v, kRow));
    backend_->kv_write({.format = format_,
                        .slab = pool_->slab(),
                        .slots = slots,
                        .k = Tensor(k.data(), DType::kF32, {rows, kKvHeads, kDim}),
                        .v = Tensor(v.data(), DType::kF32, {rows, kKvHeads, kDim}),
                        .open_slab = pool_->open_slab()});
    std::vector<KvSeal> seals;
    sequence.list_seals(0, seals);
    backend_->kv_seal({.format = format_,
                       .open_slab = pool_->open_slab(),
                       .slab = pool_->slab(),
                       .pages = seals,
                       .aux = pool_->aux_slab()});

    const AttentionSegment segment{&sequence, 0, rows, begin};
    const AttentionPlan plan = dense_plan({.layer = 0, .window = 0, .segments = {&segment, 1}});
    std::vector<int32_t> positions;
    for (int i = begin; i < end; ++i) positions.push_back(i);
    Numbers result{std::vector<float>(static_cast<size_t>(rows) * kHeads * kDim),
                   std::vector<float>(static_cast<size_t>(rows) * kHeads)};
    Buffer queries = device(part(q, size_t{kHeads} * kDim)), where = device(std::as_bytes(std::span(positions)));
    Buffer out = device(std::as_bytes(std::span(result.out))), lse = device(std::as_bytes(std::span(result.lse)));
    backend_->attention({.format = format_,
                         .slab = pool_->slab(),
                         .open_slab = pool_->open_slab(),
                         .aux = pool_->aux_slab(),
                         .plan = &plan,
                         .q = Tensor(queries.data(), DType::kF32, {rows, kHeads, kDim}),
                         .positions = Tensor(where.data(), DType::kI32, {rows}),
                         .kv_heads = kKvHeads,
                         .scale = kScale,
                         .partial = {Tensor(out.data(), DType::kF32, {rows, kHeads, kDim}),
                                     Tensor(lse.data(), DType::kF32, {rows, kHeads})}});
    backend_->download(std::as_writable_bytes(std::span(result.out)), out.data());
    backend_->download(std::as_writable_bytes(std::span(result.lse)), lse.data());
    EXPECT_TRUE(sequence.check_integrity());
    EXPECT_TRUE(pool_->check_integrity());
    sequence.settle();
    EXPECT_TRUE(pool_->check_integrity());
    return result;
  }
  // Steps of at most `chunk` tokens.
  Numbers steps(KvSequence& sequence, const Text& text, int end, const std::vector<float>& q, int chunk) {
    Numbers all;
    while (sequence.next_position() < end) {
      const Numbers some = step(sequence, text, std::min(end, sequence.next_position() + chunk), q);
      all.out.insert(all.out.end(), some.out.begin(), some.out.end());
      all.lse.insert(all.lse.end(), some.lse.begin(), some.lse.end());
    }
    return all;
  }

  void expect_row(const Text& text, int position, int head, const float* q, const float* out, float lse, double bound) {
    std::vector<double> sum(kDim);
    double total = 0;
    for (int t = 0; t <= position; ++t) {
      const bool sealed = sealed_for(t / kPage, position);
      const size_t line = static_cast<size_t>(t) * kRow + static_cast<size_t>(head / (kHeads / kKvHeads)) * kDim;
      const float *k = &(sealed ? text.sealed_k : text.k)[line], *v = &(sealed ? text.sealed_v : text.v)[line];
      double score = 0;
      for (size_t d = 0; d < kDim; ++d) score += double{q[d]} * k[d];
      const double weight = std::exp(score * kScale);
      total += weight;
      for (size_t d = 0; d < kDim; ++d) sum[d] += weight * v[d];
    }
    ASSERT_NEAR(lse, std::log(total), bound) << position;
    for (size_t d = 0; d < kDim; ++d) ASSERT_NEAR(out[d], sum[d] / total, bound) << position;
  }

  // Whether a query at this slot reads the page sealed.
  bool sealed_for(int page, int slot) const {
    const auto ordinal = static_cast<size_t>(page);
    return ordinal >= format_.sealed_begin() && ordinal < format_.sealed_end(static_cast<size_t>(slot));
  }

  static constexpr float kScale = 0.125f;
  std::unique_ptr<Backend> backend_;
  KvFormat format_;
  std::unique_ptr<KvPool> pool_;
};

TEST_P(SealedPages, EqualTheDefinitionOnEveryTarget) {
  std::vector<std::string> targets(cpu_simd_targets().begin(), cpu_simd_targets().end());
  targets.emplace_back("reference");
  for (const std::string& target : targets) {
    SCOPED_TRACE(target);
    use(target);
    const Text text(format_, 450, 1);
    const std::vector<float> q = draw(450 * size_t{kHeads} * kDim, 9);
    auto sequence = make();
    const Numbers got = steps(*sequence, text, 450, q, 200);
    const bool rounds = target.find("BF16") != std::string::npos || target.rfind("AMX", 0) == 0;
    const double bound = rounds ? 2e-2 : 1e-4;
    for (int position : {0, 63, 64, 127, 128, 191, 192, 255, 256, 320, 383, 384, 449})
      for (int head = 0; head < kHeads; ++head) {
        const auto at = static_cast<size_t>(position * kHeads + head);
        expect_row(text, position, head, &q[at * kDim], &got.out[at * kDim], got.lse[at], bound);
        if (HasFatalFailure()) return;
      }
  }
}

TEST_P(SealedPages, NoBitDependsOnChunksThreadsOrForks) {
  use("");
  const Text text(format_, 450, 3);
  const std::vector<float> q = draw(450 * size_t{kHeads} * kDim, 5);
  auto whole = make();
  const Numbers want = steps(*whole, text, 450, q, 450);
  for (int chunk : {17, 64, 65, 300}) {
    auto sequence = make();
    Numbers got = steps(*sequence, text, 380, q, chunk);
    const Numbers rest = steps(*sequence, text, 450, q, chunk == 17 ? 1 : chunk);
    got.out.insert(got.out.end(), rest.out.begin(), rest.out.end());
    got.lse.insert(got.lse.end(), rest.lse.begin(), rest.lse.end());
    EXPECT_EQ(got.out, want.out) << chunk;
    EXPECT_EQ(got.lse, want.lse) << chunk;
    EXPECT_EQ(sequence->bytes(), whole->bytes());
  }
  auto base = make();
  steps(*base, text, 330, q, 330);
  auto fork = base->fork();
  for (KvSequence* sequence : {fork.get(), base.get()}) {
    const Numbers got = steps(*sequence, text, 450, q, 90);
    EXPECT_TRUE(std::equal(got.out.begin(), got.out.end(), want.out.begin() + 330 * kHeads * kDim));
  }
  whole.reset(), base.reset(), fork.reset();
  use("", 1);
  auto alone = make();
  EXPECT_EQ(steps(*alone, text, 450, q, 450).out, want.out);
}

TEST_P(SealedPages, BytesAreThoseOfBothForms) {
  use("");
  const Text text(format_, 640, 3);
  const std::vector<float> q = draw(640 * size_t{kHeads} * kDim, 5);
  auto sequence = make();
  for (int end = 1; end <= 640; end += 71) {
    steps(*sequence, text, end, q, 71);
    size_t sealed = 0, open = 0;
    for (int page = 0; page * kPage < end; ++page) ++(sealed_for(page, end) ? sealed : open);
    EXPECT_EQ(sequence->bytes(), kKvHeads * (sealed * format_.page_bytes() + open * 2 * kPage * kDim * 2)) << end;
    EXPECT_EQ(pool_->bytes_in_use(), sequence->bytes());
    EXPECT_EQ(sequence->exclusive_bytes(), sequence->bytes());
  }
}

TEST_P(SealedPages, TruncatedToAnExactLengthAsIfNeverLonger) {
  use("");
  const Text text(format_, 700, 3);
  const std::vector<float> q = draw(700 * size_t{kHeads} * kDim, 5);
  auto whole = make();
  const Numbers want = steps(*whole, text, 700, q, 700);
  const int32_t least = whole->shortest_exact();
  ASSERT_GT(least, 0);
  ASSERT_LE(least, 700);
  for (int32_t end : {least, least + 1, 700}) {
    auto sequence = make();
    steps(*sequence, text, 700, q, 700);
    auto fresh = make();
    steps(*fresh, text, end, q, 700);
    sequence->truncate(end);
    EXPECT_EQ(sequence->bytes(), fresh->bytes());
    EXPECT_EQ(sequence->shortest_exact(), least);
    const Numbers got = steps(*sequence, text, 700, q, 50);
    EXPECT_TRUE(std::equal(got.out.begin(), got.out.end(), want.out.begin() + end * kHeads * kDim)) << end;
  }
  whole->truncate(0);
  EXPECT_EQ(whole->bytes(), 0U);
  EXPECT_EQ(steps(*whole, text, 700, q, 100).out, want.out);
}

TEST_P(SealedPages, ANanReachesNoOtherToken) {
  use("");
  Text text(format_, 300, 3);
  const std::vector<float> q = draw(300 * size_t{kHeads} * kDim, 5);
  auto clean = make(), poisoned = make();
  const Numbers want = steps(*clean, text, 300, q, 300);
  text.k[70 * kRow + 5] = NAN;  // of KV head 0
  const Numbers got = steps(*poisoned, text, 300, q, 300);
  for (size_t position : {size_t{0}, size_t{69}, size_t{70}, size_t{150}, size_t{299}})
    for (size_t head = 0; head < kHeads; ++head) {
      const size_t at = (position * kHeads + head) * kDim;
      const bool sees = position >= 70 && head < 2;
      for (size_t d = 0; d < kDim; ++d) {
        if (sees) {
          ASSERT_TRUE(std::isnan(got.out[at + d])) << position << " " << head;
        } else {
          ASSERT_EQ(got.out[at + d], want.out[at + d]) << position << " " << head;
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Codecs, SealedPages,
                         ::testing::Values("kivi:last=0", "kivi", "kivi:k=4,v=4,last=64,first=64", "kivi:k=4",
                                           "q4:last=128", "q4:first=64", "q4:k=8,last=64,first=128", "mustafar:last=0",
                                           "mustafar:k=0.7,v=0.3,last=64,first=64", "ksort:last=0",
                                           "ksort:k=8,sort=off,first=64", "think:last=0",
                                           "think:drop=0.7,file=FILE,first=64", "gear:last=0",
                                           "gear:k=4,v=4,rank=1,extremes=3,first=64", "million:file=FILE,last=0",
                                           "xquant:file=FILE,last=0",
                                           "xquant:file=FILE,k=8,v=16,rank=0.3,rest=4,first=64"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace godwit
