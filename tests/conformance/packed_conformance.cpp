// Weights that pack() laid out anew: the bits of products with the rows they were made of, on every SIMD target.
#include "device.h"

namespace godwit::test {
namespace {

class PackedTest : public InEveryWay {
 protected:
  Tensor pack(const Tensor& rows) {
    Tensor packed = device_.make({rows.elements() / rows.shape[static_cast<size_t>(rows.rank - 1)],
                                  rows.shape[static_cast<size_t>(rows.rank - 1)]},
                                 Floats(static_cast<size_t>(rows.elements())), rows.dtype);
    packed.rank = rows.rank;
    packed.shape = rows.shape;
    packed.row_stride_bytes = rows.row_stride_bytes;
    packed.packed = true;
    device_->pack(rows, packed);
    return packed;
  }
  Tensor weights(std::initializer_list<int64_t> dims, DType dtype, uint32_t seed) {
    int64_t count = 1;
    for (int64_t dim : dims) count *= dim;
    return device_.make(dims, random_floats(static_cast<size_t>(count), seed, 0.1f), dtype);
  }
  Floats product(const Tensor& x, const Tensor& w) {
    const Tensor y = device_.make({x.shape[0], w.shape[0]}, Floats(static_cast<size_t>(x.shape[0] * w.shape[0]), 7.0f));
    device_->matmul({.x = x, .w = w, .bias = {}, .y = y, .phase = device_.phase()});
    return device_.read(y);
  }
  Floats gated(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& gate_bias = {},
               const Tensor& up_bias = {}) {
    const Floats zeros(static_cast<size_t>(x.shape[0] * gate.shape[0]));
    const Tensor y = device_.make({x.shape[0], gate.shape[0]}, zeros),
                 spare = device_.make({x.shape[0], gate.shape[0]}, zeros);
    device_->gated_matmul({.x = x,
                           .gate_w = gate,
                           .gate_bias = gate_bias,
                           .up_w = up,
                           .up_bias = up_bias,
                           .y = y,
                           .spare = spare,
                           .phase = device_.phase()});
    return device_.read(y);
  }
  Tensor input(int64_t rows, int64_t in) {
    return device_.make({rows, in}, random_floats(static_cast<size_t>(rows * in), 1));
  }
  // Every type that the back-end packs.
  std::vector<DType> types() {
    std::vector<DType> found;
    for (const DTypeInfo& info : all_dtypes())
      if (info.dtype != DType::kI32 && device_->can_pack(Tensor(nullptr, info.dtype, {32, 512})))
        found.push_back(info.dtype);
    return found;
  }
  bool has_tiles() const { return device_.target().rfind("AMX", 0) == 0; }
  bool in_8_bits() const { return rounding_of(device_, DType::kQ8_0) != Rounding::kNone; }

  Device device_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Ways, PackedTest, every_way(), way_name);

TEST_P(PackedTest, WhatIsPackedAndWhatNot) {
  const auto can = [&](DType dtype, std::initializer_list<int64_t> dims) {
    return device_->can_pack(Tensor(nullptr, dtype, dims));
  };
  for (const DTypeInfo& info : all_dtypes()) {
    const DType dtype = info.dtype;
    if (!is_quantized(dtype)) continue;
    EXPECT_EQ(can(dtype, {32, 512}), in_8_bits());
    EXPECT_EQ(can(dtype, {4, 16, 256}), in_8_bits());
    EXPECT_FALSE(can(dtype, {40, 512}));  // not whole strips
    if (dtype_info(dtype).block_elements == 32) {
      EXPECT_FALSE(can(dtype, {32, 288}));  // not whole units
    }
    EXPECT_FALSE(can(dtype, {4, 8, 256}));
  }
  EXPECT_FALSE(can(DType::kF32, {32, 512}));
  EXPECT_FALSE(can(DType::kF16, {32, 512}));
  EXPECT_EQ(can(DType::kBF16, {32, 512}), has_tiles());  // whose strips are tiles
  EXPECT_FALSE(can(DType::kBF16, {40, 512}));
  EXPECT_FALSE(can(DType::kBF16, {32, 288}));
}

// Rows of x on both sides of every border between kernels.
TEST_P(PackedTest, ProductsKeepTheirBits) {
  for (DType dtype : types())
    for (int64_t in : {256, 1280})
      for (int64_t rows : {1, 2, 3, 6, 7, 12, 17, 33, 63, 64, 100}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << in << ", rows " << rows);
        const Tensor x = input(rows, in), w = weights({208, in}, dtype, 2);
        expect_same(product(x, pack(w)), product(x, w));
      }
}

// More rows of x than one task takes, each as it is alone.
TEST_P(PackedTest, ManyRowsAreEachAsAlone) {
  constexpr int64_t kIn = 2560, kOut = 80;  // more units than a chunk of a panel has
  for (DType dtype : types()) {
    const Floats x = random_floats(static_cast<size_t>(530 * kIn), 6);
    const Tensor w = pack(weights({kOut, kIn}, dtype, 7));
    const Floats all = product(device_.make({530, kIn}, x), w);
    for (int64_t row : {0, 255, 511, 512, 529}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", row " << row);
      const auto at = x.begin() + row * kIn, out = all.begin() + row * kOut;
      expect_same(product(device_.make({1, kIn}, Floats(at, at + kIn)), w), Floats(out, out + kOut));
    }
  }
}

TEST_P(PackedTest, UnpackingGivesTheSameBytes) {
  for (DType dtype : types()) {
    const Tensor w = weights({48, 768}, dtype, 3), back = weights({48, 768}, dtype, 4);
    device_->unpack(pack(w), back);
    std::vector<std::byte> want(w.bytes()), got(w.bytes());
    device_->download(want, w.data);
    device_->download(got, back.data);
    EXPECT_EQ(got, want) << dtype_name(dtype);
  }
}

// Gate and up may be of different types, of which one is packed.
TEST_P(PackedTest, GroupsMayMixForms) {
  const std::vector<DType> packs = types();
  if (packs.empty()) return;
  for (DType other : {DType::kQ4_0, DType::kQ8_0, DType::kQ4_K})
    for (int64_t rows : {1, 5, 40, 70}) {
      SCOPED_TRACE(testing::Message() << dtype_name(other) << ", rows " << rows);
      const Tensor x = input(rows, 512), gate = weights({96, 512}, packs[0], 2), up = weights({96, 512}, other, 3);
      expect_same(gated(x, pack(gate), up), gated(x, gate, up));
    }
}

// Both packed: strips of gate and up are multiplied in turn.
TEST_P(PackedTest, PairsKeepTheirBits) {
  for (DType dtype : types())
    for (int64_t rows : {1, 16, 40, 130})
      for (bool biased : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", rows " << rows << (biased ? ", biased" : ""));
        constexpr int64_t kOut = 176, kIn = 768;
        const Tensor x = input(rows, kIn), gate = weights({kOut, kIn}, dtype, 2), up = weights({kOut, kIn}, dtype, 3);
        Tensor gate_bias, up_bias;
        if (biased) {
          gate_bias = device_.make({kOut}, random_floats(kOut, 8));
          up_bias = device_.make({kOut}, random_floats(kOut, 9));
        }
        expect_same(gated(x, pack(gate), pack(up), gate_bias, up_bias), gated(x, gate, up, gate_bias, up_bias));
      }
}

// Rows of x that the second cache holds a part of K at a time, and outputs that go past the caches.
TEST_P(PackedTest, LargeProductsKeepTheirBits) {
  for (DType dtype : types()) {
    if (dtype != DType::kQ4_0 && dtype != DType::kBF16) continue;  // one for each kind of tiles
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>(5120, 48), std::pair<int64_t, int64_t>(256, 4096)}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << in << " to " << out);
      constexpr int64_t kRows = 288;
      const Floats x = random_floats(static_cast<size_t>(kRows * in), 6);
      const Tensor w = pack(weights({out, in}, dtype, 7));
      const Floats all = product(device_.make({kRows, in}, x), w);
      for (int64_t row : {0, 31, 255, 287}) {
        SCOPED_TRACE(testing::Message() << "row " << row);
        const auto at = x.begin() + row * in, y = all.begin() + row * out;
        expect_same(product(device_.make({1, in}, Floats(at, at + in)), w), Floats(y, y + out));
      }
    }
  }
}

// Outputs past the caches, of a pair and of two types, of which the second reads what the first wrote.
TEST_P(PackedTest, LargeGatedProductsKeepTheirBits) {
  if (types().empty()) return;
  constexpr int64_t kRows = 288, kIn = 256, kOut = 4096;
  const Floats x = random_floats(static_cast<size_t>(kRows * kIn), 6);
  const Tensor gate = pack(weights({kOut, kIn}, DType::kQ4_0, 2));
  for (DType other : {DType::kQ4_0, DType::kQ8_0}) {
    SCOPED_TRACE(dtype_name(other));
    const Tensor up = pack(weights({kOut, kIn}, other, 3));
    const Floats all = gated(device_.make({kRows, kIn}, x), gate, up);
    for (int64_t row : {0, 40, 287}) {
      const auto at = x.begin() + row * kIn, y = all.begin() + row * kOut;
      expect_same(gated(device_.make({1, kIn}, Floats(at, at + kIn)), gate, up), Floats(y, y + kOut));
    }
  }
}

TEST_P(PackedTest, ExpertsKeepTheirBits) {
  for (DType dtype : types()) {
    SCOPED_TRACE(dtype_name(dtype));
    const Tensor x = input(20, 256), w = weights({4, 48, 256}, dtype, 5);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 4);
    std::vector<Floats> got;
    for (const Tensor& form : {w, pack(w)}) {
      const Tensor y = device_.make({40, 48}, Floats(40 * 48));
      device_->expert_matmul(
          {.x = x, .w = form, .ids = device_.make_ints({20, 2}, ids), .y = y, .phase = device_.phase()});
      got.push_back(device_.read(y));
    }
    expect_same(got[1], got[0]);
  }
}

TEST_P(PackedTest, RowsOfATableAreReadAsTheyWere) {
  const std::vector<int32_t> ids{0, 1, 15, 16, 31, 17, 47, 16};
  for (DType dtype : types()) {
    SCOPED_TRACE(dtype_name(dtype));
    const Tensor table = weights({48, 512}, dtype, 9);
    std::vector<Floats> got;
    for (const Tensor& form : {table, pack(table)}) {
      const Tensor out = device_.make({8, 512}, Floats(8 * 512, 7.0f));
      device_->embed(device_.make_ints({8}, ids), form, 1.5f, out);
      got.push_back(device_.read(out));
    }
    expect_same(got[1], got[0]);
  }
}

}  // namespace
}  // namespace godwit::test
