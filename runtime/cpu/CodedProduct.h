//===- CodedProduct.h - A product with a matrix of codes -------------------===//
// Weights of 8 or 4 bits are read once for a few rows of activations, and become f32 in registers. So a step that
// generates text takes the time of reading a quarter or an eighth of the bytes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_CODEDPRODUCT_H
#define PCRT_CPU_CODEDPRODUCT_H

#include "cpu/CodedKernels.h"
#include "pcrt/pcrt.h"

#include <optional>
#include <vector>

namespace pcrt {

/// Returns the reason why a product with codes cannot be computed, or null.
const char *checkCodes(const pcrt_gemm_desc &desc);

/// Computes some columns of c = a b, or of c += a b if the product accumulates, plus a bias if it has one. b has codes.
/// Every row of c is computed in the same way, so its bits do not depend on the other rows. The constructor allocates
/// everything. One thread uses an object. `a`, `c` and `bias` begin at the columns of this share; `b` and `scales`
/// begin at the whole product.
class CodedProduct {
public:
  /// `share` is the product with fewer columns, from `column` on.
  CodedProduct(const pcrt_gemm_desc &share, int64_t column);

  /// Computes the first `rows` rows. For any number of rows from three on, a row of the result has the same bits.
  void run(const void *a, const void *b, void *c, const float *bias, const float *scales, int64_t rows);

  /// Returns a product in f32 of some columns, as many as fit into a cache. It is meant for products of many rows. Its
  /// a [m, k] and c [m, n] have no gaps. Returns std::nullopt if `run` is faster.
  std::optional<pcrt_gemm_desc> wide() const;
  /// Writes columns of b as the product of `wide` reads them. Codes of 8 bits have no scale yet.
  void expand(const void *b, const float *scales, int64_t column, int64_t columns, float *to) const;
  /// Writes the first `m` rows of a in f32.
  void widen(const void *a, int64_t m, float *to) const;
  /// Converts columns of `m` rows of a result, whose rows are `stride` apart, to the form of c, and writes them.
  void store(float *result, int64_t m, int64_t stride, void *c, int64_t column, int64_t columns, const float *bias,
             const float *scales) const;

  /// The dtype of c.
  int32_t result() const { return desc.c_dtype; }

private:
  CodedTask taskOf(const void *b, const float *scales, int64_t column, int64_t columns) const;
  void runRows(int64_t m, const char *a, const void *b, char *c, const float *bias, const float *scales);

  pcrt_gemm_desc desc;
  int64_t firstColumn;
  std::vector<float> rows, sums; ///< some rows of a and c in f32
};

} // namespace pcrt

#endif // PCRT_CPU_CODEDPRODUCT_H
