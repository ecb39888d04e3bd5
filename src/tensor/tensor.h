// A view of numbers in the memory of some back-end: address, type, shape. It owns nothing.
//
// Shapes are row-major, outermost first: a weight is [out, in], activations are [rows, columns]. The last dimension is
// contiguous; the first may have a stride, so a column range of a matrix is a view too. `data` may be device memory:
// only the back-end it belongs to follows the pointer. A host view (io, tests) is one whose maker says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "tensor/dtype.h"

namespace godwit {

struct Tensor {
  static constexpr int kMaxRank = 4;

  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{1, 1, 1, 1};  // entries past rank are 1
  size_t row_stride_bytes = 0;                      // from one index of shape[0] to the next
  bool packed = false;                              // laid out by Backend::pack(); others cannot read it

  Tensor() = default;
  Tensor(void* address, DType type, std::initializer_list<int64_t> dims)
      : data(static_cast<std::byte*>(address)), dtype(type), rank(static_cast<int>(dims.size())) {
    GODWIT_CHECK(rank >= 1 && rank <= kMaxRank);
    int i = 0;
    for (int64_t dim : dims) shape[static_cast<size_t>(i++)] = dim;
    row_stride_bytes = dtype_bytes(dtype, static_cast<size_t>(row_elements()));
  }

  explicit operator bool() const { return data != nullptr; }
  int64_t rows() const { return shape[0]; }
  int64_t row_elements() const {  // elements of everything inside one index of shape[0]
    int64_t n = 1;
    for (int i = 1; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  int64_t elements() const { return shape[0] * row_elements(); }
  size_t bytes() const { return static_cast<size_t>(rows()) * dtype_bytes(dtype, static_cast<size_t>(row_elements())); }
  bool contiguous() const {
    return rows() <= 1 || row_stride_bytes == dtype_bytes(dtype, static_cast<size_t>(row_elements()));
  }

  // Rows [begin, end) of the first dimension.
  Tensor slice(int64_t begin, int64_t end) const {
    GODWIT_CHECK(!packed && begin >= 0 && begin <= end && end <= shape[0]);
    Tensor view = *this;
    view.data += static_cast<size_t>(begin) * row_stride_bytes;
    view.shape[0] = end - begin;
    return view;
  }
  // Columns [begin, end) of a matrix of plain elements.
  Tensor columns(int64_t begin, int64_t end) const {
    GODWIT_CHECK(!packed && rank == 2 && begin >= 0 && begin <= end && end <= shape[1]);
    Tensor view = *this;
    view.data += dtype_bytes(dtype, static_cast<size_t>(begin));
    view.shape[1] = end - begin;
    return view;
  }
  // The same numbers under another shape. REQUIRES: contiguous(), equal number of elements.
  Tensor reshape(std::initializer_list<int64_t> dims) const {
    GODWIT_CHECK(contiguous());
    Tensor view(data, dtype, dims);
    GODWIT_CHECK(view.elements() == elements());
    return view;
  }
};

}  // namespace godwit
