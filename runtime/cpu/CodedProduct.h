//===- CodedProduct.h - A product with a matrix of codes -------------------===//
// Weights of 8 or 4 bits are read once for a few rows of activations, and become f32 in registers. So a step that
// generates text takes the time of reading a quarter or an eighth of the bytes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_CODEDPRODUCT_H
#define PCRT_CPU_CODEDPRODUCT_H

#include "pcrt/pcrt.h"

#include <vector>

namespace pcrt {

/// Why a product with codes cannot be computed, or null.
const char *checkCodes(const pcrt_gemm_desc &desc);

/// Computes c = a b, or c += a b if the product accumulates, plus a bias if it has one, for some columns of a product
/// whose b has codes. Every row of c is computed in the same way, so its bits do not depend on the other rows. The
/// constructor allocates everything. One thread uses an object.
class CodedProduct {
public:
  /// `share` is the product with fewer columns, from `column` on.
  CodedProduct(const pcrt_gemm_desc &share, int64_t column);

  /// `a`, `c` and `bias` begin at the share, `b` and `scales` at the whole product.
  void run(const void *a, const void *b, void *c, const float *bias, const float *scales);

private:
  void runRows(int64_t m, const char *a, const void *b, char *c, const float *bias, const float *scales);

  pcrt_gemm_desc desc;
  int64_t firstColumn;
  std::vector<float> rows, sums; ///< some rows of a and c in f32
};

} // namespace pcrt

#endif // PCRT_CPU_CODEDPRODUCT_H
