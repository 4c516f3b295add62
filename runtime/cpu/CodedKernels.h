//===- CodedKernels.h - Loops over codes of weights -------------------------===//
// The inner loops of CodedProduct, for the vectors of this CPU.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_CODEDKERNELS_H
#define PCRT_CPU_CODEDKERNELS_H

#include <cstdint>

namespace pcrt {

/// A product with codes. a [m, k] and c [m, n] are in f32; b and scales begin at the first of the n columns. `stride`,
/// in bytes, is that between columns if the codes of a column are contiguous, otherwise that along k. `scaleStride` is
/// that between columns, or between groups.
struct CodedTask {
  static constexpr int64_t mostRows = 8; ///< that read b together

  const float *a;
  const int8_t *b;
  const float *scales;
  float *c;
  int64_t m, n, k, group, stride, scaleStride;
};

/// Adds the product of a and b to c. Codes of 8 bits are multiplied without their scales. If there is no a, writes the
/// numbers of b to c: as [n, k] if the codes of a column are contiguous, otherwise as [k, n]. Codes have 8 bits if
/// `isWide` is true, otherwise 4.
void computeCoded(const CodedTask &task, bool isWide, bool byColumns);

} // namespace pcrt

#endif // PCRT_CPU_CODEDKERNELS_H
