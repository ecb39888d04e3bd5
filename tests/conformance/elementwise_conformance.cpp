// Operations on rows of activations: every SIMD target against the reference back-end.
#include <cmath>

#include "device.h"

namespace godwit::test {
namespace {

class ElementwiseTest : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, ElementwiseTest, testing::ValuesIn(tested_targets()));

const std::vector<int64_t> kWidths = {1, 3, 7, 16, 31, 64, 100, 2048};
constexpr int64_t kWide = 40000;  // more than one task's worth of columns

size_t size(int64_t rows, int64_t columns) {
  return static_cast<size_t>(rows * columns);
}

TEST_P(ElementwiseTest, EmbedReadsRowsOfEveryType) {
  Device tested(GetParam()), reference("reference");
  for (const DTypeInfo& info : all_dtypes()) {
    if (!tested->supports(info.dtype)) continue;
    SCOPED_TRACE(info.name);
    const int64_t dim = 3 * info.block_elements, vocab = 11;
    auto run = [&](Device& device) {
      const Tensor tokens = device.make_ints({4}, {10, 0, 3, 3});
      const Tensor table = device.make({vocab, dim}, random_floats(size(vocab, dim), 1), info.dtype);
      const Tensor out = device.make({4, dim}, Floats(size(4, dim)), DType::kF32, 3);
      device->embed(tokens, table, 1.5f, out);
      EXPECT_TRUE(device.gaps_intact(out, 3));
      return device.read(out);
    };
    expect_same(run(tested), run(reference));
  }
}

TEST_P(ElementwiseTest, GatherRowsCopies) {
  Device tested(GetParam());
  const Floats values = random_floats(size(6, 37), 1);
  const Tensor x = tested.make({6, 37}, values, DType::kF32, 4), out = tested.make({3, 37}, Floats(size(3, 37)));
  tested->gather_rows(x, tested.make_ints({3}, {5, 0, 5}), out);
  expect_same(tested.read(out), pick_rows(values, 37, {5, 0, 5}));
}

// fp32 sum of squares: 2e-6 relative.
TEST_P(ElementwiseTest, RmsNorm) {
  Device tested(GetParam()), reference("reference");
  for (int64_t dim : kWidths) {
    for (bool in_place : {false, true}) {
      SCOPED_TRACE(dim);
      auto run = [&](Device& device) {
        const Tensor x = device.make({5, dim}, random_floats(size(5, dim), 1, 3), DType::kF32, 7);
        const Tensor out = in_place ? x : device.make({5, dim}, Floats(size(5, dim)), DType::kF32, 7);
        device->rms_norm(x, device.make({dim}, random_floats(static_cast<size_t>(dim), 2)), 1e-5f, out);
        EXPECT_TRUE(device.gaps_intact(out, 7));
        return device.read(out);
      };
      expect_close(run(tested), run(reference), 2e-6f);
    }
  }
}

TEST_P(ElementwiseTest, RmsNormOfHeadsIsRmsNormOfRows) {
  Device tested(GetParam());
  const Floats values = random_floats(size(6, 40), 1);
  const Tensor weight = tested.make({40}, random_floats(40, 2));
  const Tensor heads = tested.make({2, 3, 40}, values), rows = tested.make({6, 40}, values);
  tested->rms_norm(heads, weight, 1e-6f, heads);
  tested->rms_norm(rows, weight, 1e-6f, rows);
  expect_same(tested.read(heads), tested.read(rows));
}

TEST_P(ElementwiseTest, RmsNormOfTinyAndZeroRows) {
  Device tested(GetParam());
  const Tensor x = tested.make({2, 4}, {0, 0, 0, 0, 1e-10f, -1e-10f, 1e-10f, -1e-10f});
  tested->rms_norm(x, tested.make({4}, {1, 1, 1, 1}), 1e-6f, x);
  expect_close(tested.read(x), {0, 0, 0, 0, 1e-7f, -1e-7f, 1e-7f, -1e-7f}, 1e-5f);
}

// The table of sines is shared, so only the rotation rounds: 1e-6 of the pair's length.
TEST_P(ElementwiseTest, Rope) {
  Device tested(GetParam()), reference("reference");
  for (RopeStyle style : {RopeStyle::kHalves, RopeStyle::kPairs}) {
    for (int64_t head_dim : {2, 10, 64, 128, 256}) {
      for (int64_t rotary : {head_dim, head_dim / 4 * 2}) {
        SCOPED_TRACE(testing::Message() << rotary << " of " << head_dim);
        auto run = [&](Device& device) {
          RopeArgs args;
          args.x = device.make({5, 3, head_dim}, random_floats(size(15, head_dim), 1), DType::kF32, 6);
          args.positions = device.make_ints({5}, {0, 1, 777, 131071, 1048575});
          Floats inv_freq;
          for (int64_t i = 0; i < rotary / 2; ++i)
            inv_freq.push_back(std::pow(500000.0f, -2 * static_cast<float>(i) / static_cast<float>(rotary)));
          args.inv_freq = device.make({rotary / 2}, inv_freq);
          args.magnitude = 1.2f;
          args.style = style;
          device->rope(args);
          EXPECT_TRUE(device.gaps_intact(args.x, 6));
          return device.read(args.x);
        };
        expect_close(run(tested), run(reference), 1e-6f, 2e-6f);
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeRotatesTheRightPairs) {
  Device tested(GetParam());
  const float c = std::cos(2.0f), s = std::sin(2.0f);
  for (RopeStyle style : {RopeStyle::kHalves, RopeStyle::kPairs}) {
    RopeArgs args;
    args.x = tested.make({1, 1, 6}, {1, 0, 0, 0, 9, 8});
    args.positions = tested.make_ints({1}, {2});
    args.inv_freq = tested.make({2}, {1, 0.25f});
    args.style = style;
    tested->rope(args);
    const Floats want = style == RopeStyle::kHalves ? Floats{c, 0, s, 0, 9, 8} : Floats{c, s, 0, 0, 9, 8};
    expect_close(tested.read(args.x), want, 1e-6f);
  }
}

// Exponentials of fp32 arguments: 2e-6 relative, down to where the result no longer matters.
TEST_P(ElementwiseTest, Gated) {
  Device tested(GetParam()), reference("reference");
  for (Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
    for (int64_t dim : {int64_t{1}, int64_t{37}, int64_t{2048}, kWide}) {
      for (bool in_place : {false, true}) {
        auto run = [&](Device& device) {
          const Tensor gate = device.make({3, dim}, random_floats(size(3, dim), 1, 5), DType::kF32, 2);
          const Tensor up = device.make({3, dim}, random_floats(size(3, dim), 2));
          const Tensor out = in_place ? gate : device.make({3, dim}, Floats(size(3, dim)), DType::kF32, 2);
          device->gated(kind, gate, up, out);
          EXPECT_TRUE(device.gaps_intact(out, 2));
          return device.read(out);
        };
        expect_close(run(tested), run(reference), 2e-6f, 1e-9f);
      }
    }
  }
}

TEST_P(ElementwiseTest, GatedIsFiniteAtTheExtremes) {
  Device tested(GetParam());
  for (Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
    const Tensor x = tested.make({6}, {-3e38f, -1000, -89, 89, 1000, 3e38f}).reshape({1, 6});
    tested->gated(kind, x, tested.make({1, 6}, Floats(6, 1)), x);
    const Floats y = tested.read(x);
    EXPECT_NEAR(y[1], 0, 1e-30f);
    EXPECT_NEAR(y[2], 0, 1e-30f);
    EXPECT_EQ(y[3], 89);
    EXPECT_EQ(y[4], 1000);
    EXPECT_EQ(y[5], 3e38f);
    EXPECT_LE(std::fabs(y[0]), 2.0f);
  }
}

TEST_P(ElementwiseTest, Add) {
  Device tested(GetParam()), reference("reference");
  for (int64_t dim : {int64_t{1}, int64_t{37}, kWide}) {
    auto run = [&](Device& device) {
      const Tensor x = device.make({3, dim}, random_floats(size(3, dim), 1), DType::kF32, 2);
      device->add(x, device.make({3, dim}, random_floats(size(3, dim), 2), DType::kF32, 9));
      EXPECT_TRUE(device.gaps_intact(x, 2));
      return device.read(x);
    };
    expect_same(run(tested), run(reference));
  }
}

TEST_P(ElementwiseTest, Softcap) {
  Device tested(GetParam()), reference("reference");
  for (int64_t dim : {int64_t{1}, int64_t{37}, kWide}) {
    auto run = [&](Device& device) {
      Floats values = random_floats(size(2, dim), 1, 40);
      values[0] = -1e30f;
      if (dim > 2) values[1] = 1e-6f;
      const Tensor x = device.make({2, dim}, values, DType::kF32, 1);
      device->softcap(x, 30);
      EXPECT_TRUE(device.gaps_intact(x, 1));
      return device.read(x);
    };
    expect_close(run(tested), run(reference), 1e-6f);
  }
}

// Every operation at once on many rows, on one row, and with other numbers of threads: the same bits.
TEST_P(ElementwiseTest, RowsDependOnNothingElse) {
  const int64_t rows = 33, dim = 1030;
  const Floats gate = random_floats(size(rows, dim), 1, 3), up = random_floats(size(rows, dim), 2);
  const Floats weight = random_floats(static_cast<size_t>(dim), 3), inv_freq = {1, 0.3f, 0.1f, 0.05f, 0.01f};
  auto run = [&](Device& device, const std::vector<int64_t>& picked) {
    const auto count = static_cast<int64_t>(picked.size());
    const Tensor x = device.make({count, dim}, pick_rows(gate, dim, picked));
    const Tensor y = device.make({count, dim}, pick_rows(up, dim, picked));
    device->rms_norm(x, device.make({dim}, weight), 1e-5f, x);
    device->gated(Activation::kGeluTanh, x, y, x);
    device->add(y, x);
    device->gated(Activation::kSilu, y, x, y);
    std::vector<int32_t> positions;
    for (int64_t row : picked) positions.push_back(static_cast<int32_t>(row * 999));
    RopeArgs args;
    args.x = y.reshape({count, 103, 10});
    args.positions = device.make_ints({count}, positions);
    args.inv_freq = device.make({5}, inv_freq);
    device->rope(args);
    device->softcap(y, 5);
    return device.read(y);
  };
  std::vector<int64_t> all(static_cast<size_t>(rows));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  Device one(GetParam(), 1), two(GetParam(), 2), five(GetParam(), 5);
  const Floats want = run(one, all);
  expect_same(run(two, all), want);
  expect_same(run(five, all), want);
  for (const std::vector<int64_t>& picked : {std::vector<int64_t>{0}, {32}, {4, 3, 2, 1, 0}})
    expect_same(run(two, picked), pick_rows(want, dim, picked));
}

}  // namespace
}  // namespace godwit::test
