#include <gtest/gtest.h>

#include "model/decoder.h"

namespace godwit {
namespace {

TEST(Workspace, RowsOfATileBeginInDifferentSetsOfTheFirstCache) {
  for (const int64_t columns : {64, 100, 256, 576, 2048, 3072, 8192, 14336}) {
    const Tensor rows = Workspace::rows_apart(nullptr, 16, columns);
    EXPECT_GE(rows.row_stride_bytes, static_cast<size_t>(columns) * sizeof(float));
    EXPECT_LE(rows.row_stride_bytes, static_cast<size_t>(columns) * sizeof(float) + 256 + 63);
    EXPECT_EQ(rows.row_stride_bytes % 64, 0u);
    int in_set[64] = {};
    for (size_t row = 0; row < 16; ++row) ++in_set[row * rows.row_stride_bytes / 64 % 64];
    for (const int count : in_set) EXPECT_LE(count, 4) << columns;
  }
}

}  // namespace
}  // namespace godwit
