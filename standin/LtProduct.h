//===- LtProduct.h - The parts of a product of cuBLASLt -------------------===//
// What its descriptors contain, and the functions for operands of floats of 8 bits.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_LTPRODUCT_H
#define PC_STANDIN_LTPRODUCT_H

#include "standin/Capture.h"
#include "standin/Numbers.h"
#include "standin/abi/CublasLt.h"

#include <string>
#include <vector>

namespace pc::standin {

/// The contents of a cublasLtMatmulDesc_t.
struct Desc {
  int pointerMode = 0, transA = 0, transB = 0, epilogue = CUBLASLT_EPILOGUE_DEFAULT, smTarget = 0;
  void *bias = nullptr, *aux = nullptr;
  int64_t biasStride = 0, auxLeading = 0, auxStride = 0;
  int auxType = -1, biasType = -1;
  void *scalesOfA = nullptr, *scalesOfB = nullptr;
  int scaleModeOfA = 0, scaleModeOfB = 0;
  int8_t fastAccumulation = 0;
};

/// The contents of a cublasLtMatrixLayout_t: a matrix in column-major order, or a batch of them.
struct Layout {
  int type;
  int64_t rows, columns, leading;
  int batch = 1;
  int64_t batchStride = 0;

  bool isFloat8() const { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
  int64_t elementBytes() const { return isFloat8() ? 1 : type == CUDA_R_16BF ? 2 : 4; }
  float load(const void *base, int64_t b, int64_t row, int64_t column) const {
    int64_t at = b * batchStride + column * leading + row;
    return type == CUDA_R_16BF ? fromBf16(static_cast<const uint16_t *>(base)[at])
                               : static_cast<const float *>(base)[at];
  }
  void store(void *base, int64_t b, int64_t row, int64_t column, float value) const {
    int64_t at = b * batchStride + column * leading + row;
    if (type == CUDA_R_16BF)
      static_cast<uint16_t *>(base)[at] = toBf16(value);
    else
      static_cast<float *>(base)[at] = value;
  }
};

/// A product without its pointers.
struct Product {
  Desc desc;
  Layout a, b, c, d;
  int64_t m, n, k;
};

/// Whether an operand of the product has floats of 8 bits.
inline bool hasFloat8(const Product &p) { return p.a.isFloat8() || p.b.isFloat8(); }

/// Returns why cuBLASLt does not have this product of floats of 8 bits, or an empty string.
std::string checkFloat8(const Product &p);

/// Returns what is wrong with the pointers of such a product, or an empty string.
std::string checkFloat8Pointers(const Product &p, const void *a, const void *b, const void *d);

/// Adds the scales that such a product reads.
void addScales(std::vector<Access> &accesses, const Product &p);

/// Computes op(A) op(B) of such a product, column-major [m, n]: codes times scales, in f32.
void multiplyFloat8(const Product &p, const void *a, const void *b, std::vector<float> &product);

} // namespace pc::standin

#endif // PC_STANDIN_LTPRODUCT_H
