// C = A B or C += A B for bf16 numbers and fp32 sums: the scores of a page (A: queries, B: keys), and outputs to which
// its weighted values are added (A: weights, B: values), by AVX-512 or by tiles. An element is summed in the order of
// the depth, beginning with what was there, whatever the rows and columns beside it, so results do not depend on how
// queries are grouped.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// Rows of A and C exist up to the next multiple of the engine's rows_together(): what they hold does not matter, but it
// is read and written.
struct Product {
  const uint16_t* a;  // [rows, a_stride]
  size_t a_stride;
  const uint16_t* b;  // [columns / 16][b_depth / 2][16][2]
  size_t b_depth;
  size_t depth;    // a multiple of 32, at most b_depth and a_stride
  size_t columns;  // a multiple of 16
  float* c;        // [rows, c_stride]
  size_t c_stride;
  bool adds = false;
};

class VectorProduct {
 public:
  static constexpr bool kSleeps = false;
  static constexpr bool kMixes = false;  // nothing works beside vectors
  static constexpr size_t kStrip = 24;   // queries whose scores are in the first cache at a time

  explicit VectorProduct(size_t /*most_rows*/) {}

  size_t rows_together() const { return 1; }

  void multiply(Product product, size_t rows, Ahead& ahead) const {
    for (; rows > 0; rows -= std::min<size_t>(rows, kMaxRows)) {
      up_to<kMaxRows>(product, rows, ahead);
      product.a += kMaxRows * product.a_stride;
      product.c += kMaxRows * product.c_stride;
    }
  }

 private:
  static constexpr size_t kMaxRows = 6;

  template <size_t kRows>
  static void up_to(const Product& product, size_t rows, Ahead& ahead) {
    if constexpr (kRows > 1) {
      if (rows < kRows) return up_to<kRows - 1>(product, rows, ahead);
    }
    size_t column = 0;
    for (; column + 64 <= product.columns; column += 64) block<kRows, 4>(product, column, ahead);
    for (; column + 32 <= product.columns; column += 32) block<kRows, 2>(product, column, ahead);
    for (; column < product.columns; column += 16) block<kRows, 1>(product, column, ahead);
  }

  template <size_t kRows, size_t kBlocks>
  HWY_INLINE static void block(const Product& product, size_t column, Ahead& ahead) {
    __m512 sum[kRows][kBlocks];
    for (size_t i = 0; i < kRows; ++i)
      for (size_t j = 0; j < kBlocks; ++j)
        sum[i][j] =
            product.adds ? _mm512_loadu_ps(product.c + i * product.c_stride + column + 16 * j) : _mm512_setzero_ps();
    const uint16_t* a = product.a;
    const uint16_t* b = product.b + column * product.b_depth;
    for (size_t k = 0; k < product.depth; k += 2, a += 2, b += 32) {
      if (k % 8 == 0) ahead.fetch(8);
      __m512bh right[kBlocks];
      for (size_t j = 0; j < kBlocks; ++j) right[j] = (__m512bh)_mm512_load_si512(b + j * 16 * product.b_depth);
      for (size_t i = 0; i < kRows; ++i) {
        int pair;
        std::memcpy(&pair, a + i * product.a_stride, sizeof pair);
        const auto left = (__m512bh)_mm512_set1_epi32(pair);
        for (size_t j = 0; j < kBlocks; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], right[j], left);
      }
    }
    for (size_t i = 0; i < kRows; ++i)
      for (size_t j = 0; j < kBlocks; ++j)
        _mm512_storeu_ps(product.c + i * product.c_stride + column + 16 * j, sum[i][j]);
  }
};

// Tiles 0 to 3 hold 16 rows and up to 64 columns of C, 4 holds A, and B passes through 5 to 7.
template <class Tiles>
class TileProduct {
 public:
  static constexpr bool kSleeps = std::is_same_v<Tiles, AmxTiles>;  // see Ahead::step(); tile 0 is its to overwrite
  static constexpr bool kMixes = true;                              // step() and end() make products amid other work
  static constexpr size_t kStrip = 16;

  // A tile product takes as long as A has rows: no more than there are.
  explicit TileProduct(size_t most_rows)
      : rows_(std::min<size_t>(most_rows, 16)), tiles_(shapes(static_cast<int>(rows_))) {}

  size_t rows_together() const { return rows_; }

  void multiply(Product product, size_t rows, Ahead& ahead) {
    for (; rows > 0; rows -= std::min<size_t>(rows, 16)) {
      size_t column = 0;
      for (; column + 64 <= product.columns; column += 64) block<4>(product, column, ahead);
      for (; column + 32 <= product.columns; column += 32) block<2>(product, column, ahead);
      if (column < product.columns) block<1>(product, column, ahead);
      product.a += 16 * product.a_stride;
      product.c += 16 * product.c_stride;
    }
  }

  // A product of 16 rows, 64 columns and a depth of 64, a product of tiles at a time: kSteps steps in order, and end().
  // Sums leave their tiles while the next ones are made.
  static constexpr size_t kSteps = 8;
  template <size_t kStep>
  HWY_INLINE void step(const Product& product) {
    constexpr size_t kSum = kStep % 4, kDepth = kStep / 4 * 32;
    constexpr int kRight = 5 + kStep % 3;
    float* c = product.c + 16 * kSum;
    const size_t c_bytes = product.c_stride * sizeof(float);
    if constexpr (kDepth == 0) begin_sum<kSum>(product.adds, c, c_bytes);
    if constexpr (kSum == 0) tiles_.template load<4>(product.a + kDepth, product.a_stride * sizeof(uint16_t));
    tiles_.template load<kRight>(product.b + 16 * kSum * product.b_depth + 16 * kDepth, 64);
    tiles_.template dot_bf16<kSum, 4, kRight>();
    if constexpr (kSum > 0 && kDepth > 0) tiles_.template store<kSum - 1>(c - 16, c_bytes);
  }
  HWY_INLINE void end(const Product& product) {
    tiles_.template store<3>(product.c + 48, product.c_stride * sizeof(float));
  }

 private:
  static TileShapes shapes(int rows) {
    return {{{rows, 64}, {rows, 64}, {rows, 64}, {rows, 64}, {rows, 64}, {16, 64}, {16, 64}, {16, 64}}};
  }

  template <int kSum>
  void begin_sum(bool adds, const float* c, size_t stride_bytes) {
    adds ? tiles_.template load<kSum>(c, stride_bytes) : tiles_.template zero<kSum>();
  }

  template <int kColumnTiles>
  void block(const Product& product, size_t column, Ahead& ahead) {
    const uint16_t* a = product.a;
    const uint16_t* b = product.b + column * product.b_depth;
    const size_t next = 16 * product.b_depth;  // from one column tile to the next
    float* c = product.c + column;
    const size_t c_bytes = product.c_stride * sizeof(float);
    begin_sum<0>(product.adds, c, c_bytes);
    if constexpr (kColumnTiles > 1) begin_sum<1>(product.adds, c + 16, c_bytes);
    if constexpr (kColumnTiles > 2) {
      begin_sum<2>(product.adds, c + 32, c_bytes);
      begin_sum<3>(product.adds, c + 48, c_bytes);
    }
    for (size_t k = 0; k < product.depth; k += 32, a += 32, b += 32 * 16) {
      ahead.fetch(8 * kColumnTiles);
      tiles_.template load<4>(a, product.a_stride * sizeof(uint16_t));
      tiles_.template load<5>(b, 64);
      tiles_.template dot_bf16<0, 4, 5>();
      if constexpr (kColumnTiles > 1) {
        tiles_.template load<6>(b + next, 64);
        tiles_.template dot_bf16<1, 4, 6>();
      }
      if constexpr (kColumnTiles > 2) {
        tiles_.template load<7>(b + 2 * next, 64);
        tiles_.template dot_bf16<2, 4, 7>();
        tiles_.template load<5>(b + 3 * next, 64);
        tiles_.template dot_bf16<3, 4, 5>();
      }
    }
    tiles_.template store<0>(c, c_bytes);
    if constexpr (kColumnTiles > 1) tiles_.template store<1>(c + 16, c_bytes);
    if constexpr (kColumnTiles > 2) {
      tiles_.template store<2>(c + 32, c_bytes);
      tiles_.template store<3>(c + 48, c_bytes);
    }
  }

  const size_t rows_;
  Tiles tiles_;
};
