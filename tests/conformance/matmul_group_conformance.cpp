// matmul_all and gated_matmul: the bits of the operations they stand for, on every SIMD target.
#include "device.h"

namespace godwit::test {
namespace {

struct Product {
  DType dtype;
  int64_t out;
  bool bias = false;
};

class MatmulGroupTest : public InEveryWay {
 protected:
  MatmulArgs make(const Tensor& x, const Product& product, uint32_t seed) {
    const int64_t rows = x.shape[0], in = x.shape[1];
    MatmulArgs args;
    args.x = x;
    args.w = device_.make({product.out, in}, random_floats(static_cast<size_t>(product.out * in), seed, 0.1f),
                          product.dtype);
    if (product.bias)
      args.bias = device_.make({product.out}, random_floats(static_cast<size_t>(product.out), seed + 1));
    args.y = empty(rows, product.out);
    args.phase = device_.phase();
    return args;
  }
  Tensor empty(int64_t rows, int64_t columns) {
    return device_.make({rows, columns}, Floats(static_cast<size_t>(rows * columns), 7.0f), DType::kF32, kGap);
  }
  Tensor input(int64_t rows, int64_t in) {
    return device_.make({rows, in}, random_floats(static_cast<size_t>(rows * in), 1), DType::kF32, kGap);
  }

  static constexpr int64_t kGap = 3;
  Device device_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Ways, MatmulGroupTest, every_way(), way_name);

// Types that share an arrangement of x, that need their own, and that are multiplied in different ways.
constexpr DType kTypes[][3] = {{DType::kQ4_0, DType::kQ4_0, DType::kQ4_0},
                               {DType::kQ4_K, DType::kQ4_K, DType::kQ6_K},
                               {DType::kBF16, DType::kQ8_0, DType::kF16},
                               {DType::kF32, DType::kQ8_0, DType::kF32}};

TEST_P(MatmulGroupTest, ProductsOfOneXAreThoseOfEach) {
  for (const auto& types : kTypes)
    for (int64_t rows : {1, 2, 13, 40, 70}) {
      SCOPED_TRACE(testing::Message() << dtype_name(types[0]) << ", " << dtype_name(types[1]) << " ..., " << rows);
      const Tensor x = input(rows, 512);
      std::vector<MatmulArgs> products = {make(x, {types[0], 130}, 2), make(x, {types[1], 33, true}, 4),
                                          make(x, {types[2], 64}, 6)};
      products[2].accumulate = true;
      std::vector<Floats> want;
      for (const MatmulArgs& args : products) {
        MatmulArgs alone = args;
        alone.y = empty(rows, args.y.shape[1]);
        device_->matmul(alone);
        want.push_back(device_.read(alone.y));
      }
      device_->matmul_all(products);
      for (size_t i = 0; i < products.size(); ++i) {
        expect_same(device_.read(products[i].y), want[i]);
        EXPECT_TRUE(device_.gaps_intact(products[i].y, kGap));
      }
    }
}

TEST_P(MatmulGroupTest, AGatedProductIsTwoProductsAndTheGate) {
  for (const auto& types : kTypes)
    for (int64_t rows : {1, 2, 13, 40, 70})
      for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        SCOPED_TRACE(testing::Message() << dtype_name(types[0]) << ", " << dtype_name(types[1]) << ", " << rows);
        const Tensor x = input(rows, 512);
        const bool bias = rows % 2 == 0;
        const MatmulArgs gate = make(x, {types[0], 300, bias}, 2), up = make(x, {types[1], 300, bias}, 4);
        device_->matmul(gate);
        device_->matmul(up);
        device_->gated(activation, gate.y, up.y, gate.y);
        const Tensor y = empty(rows, 300), spare = empty(rows, 300);
        device_->gated_matmul({.x = x,
                               .gate_w = gate.w,
                               .gate_bias = gate.bias,
                               .up_w = up.w,
                               .up_bias = up.bias,
                               .activation = activation,
                               .y = y,
                               .spare = spare,
                               .phase = device_.phase()});
        expect_same(device_.read(y), device_.read(gate.y));
        EXPECT_TRUE(device_.gaps_intact(y, kGap));
      }
}

TEST_P(MatmulGroupTest, ThreadsDoNotChangeBits) {
  Device one(GetParam(), 1), five(GetParam(), 5);
  const Floats x = random_floats(60 * 256, 1), gate = random_floats(400 * 256, 2), up = random_floats(400 * 256, 3);
  std::vector<Floats> got;
  for (Device* device : {&one, &five}) {
    const Tensor y = device->make({60, 400}, Floats(60 * 400)), spare = device->make({60, 400}, Floats(60 * 400));
    (*device)->gated_matmul({.x = device->make({60, 256}, x),
                             .gate_w = device->make({400, 256}, gate, DType::kQ4_K),
                             .gate_bias = {},
                             .up_w = device->make({400, 256}, up, DType::kQ4_K),
                             .up_bias = {},
                             .y = y,
                             .spare = spare,
                             .phase = device->phase()});
    got.push_back(device->read(y));
  }
  expect_same(got[0], got[1]);
}

}  // namespace
}  // namespace godwit::test
