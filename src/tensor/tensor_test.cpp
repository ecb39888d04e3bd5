#include "tensor/tensor.h"

#include <cctype>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace godwit {
namespace {

float at(const Tensor& t, int64_t row, int64_t column) {
  return reinterpret_cast<const float*>(t.data + static_cast<size_t>(row) * t.row_stride_bytes)[column];
}

class TensorViews : public ::testing::Test {
 protected:
  TensorViews() { std::iota(numbers_.begin(), numbers_.end(), 0.0f); }
  std::vector<float> numbers_ = std::vector<float>(24);
  Tensor matrix_{numbers_.data(), DType::kF32, {4, 6}};
};

TEST(Tensor, EmptyIsFalse) {
  EXPECT_FALSE(Tensor());
  EXPECT_EQ(Tensor().elements(), 1);
}

TEST_F(TensorViews, KnowsItsSize) {
  EXPECT_TRUE(matrix_);
  EXPECT_EQ(matrix_.rows(), 4);
  EXPECT_EQ(matrix_.row_elements(), 6);
  EXPECT_EQ(matrix_.elements(), 24);
  EXPECT_EQ(matrix_.bytes(), 96u);
  EXPECT_EQ(matrix_.row_stride_bytes, 24u);
  EXPECT_TRUE(matrix_.contiguous());
}

TEST_F(TensorViews, SliceTakesRows) {
  const Tensor middle = matrix_.slice(1, 3);
  EXPECT_EQ(middle.rows(), 2);
  EXPECT_EQ(middle.elements(), 12);
  EXPECT_EQ(at(middle, 0, 0), 6);
  EXPECT_EQ(at(middle, 1, 5), 17);
  EXPECT_TRUE(middle.contiguous());
  EXPECT_EQ(matrix_.slice(4, 4).elements(), 0);
  EXPECT_EQ(matrix_.slice(1, 4).slice(1, 2).data, matrix_.slice(2, 3).data);
}

TEST_F(TensorViews, SliceOfHigherRank) {
  const Tensor cube(numbers_.data(), DType::kF32, {2, 3, 4});
  const Tensor second = cube.slice(1, 2);
  EXPECT_EQ(second.rank, 3);
  EXPECT_EQ(second.row_elements(), 12);
  EXPECT_EQ(at(second, 0, 0), 12);
}

TEST_F(TensorViews, ColumnsKeepTheStride) {
  const Tensor right = matrix_.columns(2, 5);
  EXPECT_EQ(right.shape[1], 3);
  EXPECT_EQ(right.bytes(), 48u);
  EXPECT_FALSE(right.contiguous());
  EXPECT_EQ(at(right, 0, 0), 2);
  EXPECT_EQ(at(right, 3, 2), 22);
  EXPECT_EQ(at(right.slice(2, 4), 1, 0), 20);
  EXPECT_TRUE(right.slice(2, 3).contiguous()) << "one row has no stride";
  EXPECT_EQ(at(right.columns(1, 2), 1, 0), 9);
}

TEST_F(TensorViews, ReshapeKeepsTheNumbers) {
  const Tensor flat = matrix_.reshape({24});
  EXPECT_EQ(flat.rank, 1);
  EXPECT_EQ(flat.row_stride_bytes, 4u);
  const Tensor cube = flat.reshape({2, 3, 4});
  EXPECT_EQ(cube.row_stride_bytes, 48u);
  EXPECT_EQ(cube.data, matrix_.data);
  EXPECT_EQ(cube.shape[3], 1);
}

TEST_F(TensorViews, WrongViewsAreRefused) {
  EXPECT_DEATH((void)matrix_.slice(3, 2), "begin <= end");
  EXPECT_DEATH((void)matrix_.slice(0, 5), "end <= shape");
  EXPECT_DEATH((void)matrix_.columns(-1, 2), "begin >= 0");
  EXPECT_DEATH((void)matrix_.columns(0, 7), "end <= shape");
  EXPECT_DEATH((void)matrix_.reshape({24}).columns(0, 1), "rank == 2");
  EXPECT_DEATH((void)matrix_.reshape({5, 5}), "elements");
  EXPECT_DEATH((void)matrix_.columns(0, 2).reshape({8}), "contiguous");
  EXPECT_DEATH((void)Tensor(nullptr, DType::kF32, {}), "rank");
}

TEST(Tensor, QuantizedRowsAreWholeBlocks) {
  std::vector<std::byte> bytes(3 * 2 * 144);
  const Tensor weight(bytes.data(), DType::kQ4_K, {3, 512});
  EXPECT_EQ(weight.row_stride_bytes, 288u);
  EXPECT_EQ(weight.bytes(), bytes.size());
  EXPECT_EQ(weight.slice(2, 3).data - weight.data, 576);
}

TEST(DTypes, TableIsConsistent) {
  std::set<std::string_view> names;
  std::set<int> ids;
  size_t index = 0;
  for (const DTypeInfo& info : all_dtypes()) {
    EXPECT_EQ(static_cast<size_t>(info.dtype), index++) << info.name;
    EXPECT_EQ(&dtype_info(info.dtype), &info);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(ids.insert(info.gguf_id).second) << info.name;
    EXPECT_EQ(dtype_from_name(info.name), info.dtype);
    EXPECT_EQ(dtype_from_gguf_id(static_cast<uint32_t>(info.gguf_id)), info.dtype);
    EXPECT_EQ(is_quantized(info.dtype), info.block_elements > 1);
    for (const char c : info.name) EXPECT_FALSE(std::isupper(static_cast<unsigned char>(c))) << info.name;
    EXPECT_EQ(dtype_bytes(info.dtype, static_cast<size_t>(info.block_elements) * 3),
              static_cast<size_t>(info.block_bytes) * 3);
  }
  EXPECT_EQ(index, static_cast<size_t>(DType::kMXFP4) + 1);
}

TEST(DTypes, UnknownNamesAndIdsAreNone) {
  EXPECT_EQ(dtype_from_name("Q4_0"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_gguf_id(4), std::nullopt);
  EXPECT_EQ(dtype_from_gguf_id(0xffffffffu), std::nullopt);
}

}  // namespace
}  // namespace godwit
