//===- Matrix.cpp - The matrices of a product in the form of BLAS ---------===//
// A matrix has contiguous rows if its column stride is 1, and contiguous columns if its row stride is. An extent of 1
// fits either.
//===----------------------------------------------------------------------===//
#include "cpu/Matrix.h"

#include <algorithm>

using namespace pcrt;

static std::optional<Matrix> matrix(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride,
                                    int32_t dtype) {
  // The stride of an extent of 1 does not matter; choose a stride with which the matrix is contiguous.
  if (columns == 1 && columnStride != 1 && rowStride != 1)
    columnStride = 1;
  if (rows == 1 && rowStride != 1 && columnStride != 1)
    rowStride = 1;
  if (columns == 1 && columnStride == 1 && rowStride < 1)
    rowStride = 1;
  if (columnStride == 1) {
    if (rows == 1)
      rowStride = std::max(rowStride, columns);
    if (rowStride < columns)
      return std::nullopt;
  } else if (rowStride == 1) {
    if (columns == 1)
      columnStride = std::max(columnStride, rows);
    if (columnStride < rows)
      return std::nullopt;
  } else {
    return std::nullopt;
  }
  return Matrix{rows, columns, rowStride, columnStride, dtype};
}

std::optional<Operands> pcrt::operandsOf(const pcrt_gemm_desc &d) {
  auto a = matrix(d.m, d.k, d.a_m_stride, d.a_k_stride, d.a_dtype);
  auto b = matrix(d.k, d.n, d.b_k_stride, d.b_n_stride, d.b_dtype);
  auto c = matrix(d.m, d.n, d.c_m_stride, d.n == 1 ? 1 : d.c_n_stride, d.c_dtype);
  if (!a || !b || !c)
    return std::nullopt;
  return Operands{*a, *b, *c};
}
