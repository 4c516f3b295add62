//===- ThinProduct.h - A product of few rows with a large matrix -----------===//
// A program that generates text multiplies a few rows by every weight in each step. So a step takes the time of reading
// the weights. oneDNN packs the weights first and reads them in blocks, at half of the memory's rate. This product
// reads the weights once, in the order in which they are stored.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_THINPRODUCT_H
#define PCRT_CPU_THINPRODUCT_H

#include "pcrt/pcrt.h"

#include <vector>

namespace pcrt {

/// Computes c = a b, or c += a b if the product accumulates, plus a bias if it has one. Every row of c is computed in
/// the same way, so its bits do not depend on the other rows. The constructor allocates everything. One thread uses an
/// object.
class ThinProduct {
public:
  static constexpr int64_t mostRows = 8;

  /// Whether this class can compute a product of one batch entry: up to `mostRows` rows; contiguous rows of a and c;
  /// and contiguous rows or columns of b.
  static bool takes(const pcrt_gemm_desc &desc);

  explicit ThinProduct(const pcrt_gemm_desc &desc);

  void run(const void *a, const void *b, void *c, const float *bias);

private:
  pcrt_gemm_desc desc;
  std::vector<float> rows, sums; ///< a and c in f32, row by row.
};

} // namespace pcrt

#endif // PCRT_CPU_THINPRODUCT_H
