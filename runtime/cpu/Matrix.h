//===- Matrix.h - The matrices of a product in the form of BLAS -----------===//
// Turns the strides of pcrt_gemm_desc into rows or columns with a leading dimension, which oneDNN and cuBLAS take.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_MATRIX_H
#define PCRT_CPU_MATRIX_H

#include "pcrt/pcrt.h"

#include <optional>

namespace pcrt {

/// A matrix whose rows or columns are contiguous. Strides are in elements.
struct Matrix {
  int64_t rows, columns, rowStride, columnStride;
  int32_t dtype;

  bool isTransposed() const { return columnStride != 1; }
  int64_t leadingStride() const { return isTransposed() ? columnStride : rowStride; }
};

/// The operands of one batch entry of a product.
struct Operands {
  Matrix a, b, c;
};

/// The operands of `desc`; nullopt if a matrix has neither contiguous rows nor contiguous columns.
std::optional<Operands> operandsOf(const pcrt_gemm_desc &desc);

} // namespace pcrt

#endif // PCRT_CPU_MATRIX_H
