//===- Weights.h - The matrix of a product, as numbers or as codes --------------------===//
// Our own products read matrix b through this class, so that the same kernels multiply by numbers and by codes. Codes
// become numbers only in registers; the numbers are never stored.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_CODED_WEIGHTS_H
#define PC_LIB_CODEGEN_KERNELS_CODED_WEIGHTS_H

#include "../../Emit/Emit.h"
#include "pcrt/pcrt.h"

namespace pc::kernels {

/// Matrix b of a product, [experts, k, n] with the strides of its descriptor. If `d.group` is not 0, b has codes, and
/// `scales` has the scales of these codes (pcrt_gemm_desc).
class Weights {
public:
  /// If `aligned` is true, vectors begin at multiples of their size.
  Weights(const pcrt_gemm_desc &d, bool aligned, Ptr b, Ptr scales) : d(d), aligned(aligned), b(b), scales(scales) {}

  bool areCodes() const { return d.group != 0; }
  /// Returns the element (expert, k, n) as f32, or a vector of `width` elements from there on. These elements must be
  /// contiguous in memory. A vector along k begins at a multiple of `width`, which is at most 16. So half a group of
  /// 4-bit codes contains the whole vector.
  Num load(Num expert, Num k, Num n, int64_t width = 0) const;

private:
  const pcrt_gemm_desc d;
  const bool aligned;
  const Ptr b, scales;
};

} // namespace pc::kernels
#endif
