//===- PlainGemm.h - a matrix product as the ABI defines it ---------------===//
//
// For shapes and dtypes that oneDNN does not take, and for tests: f32 sums in
// the order of k, any strides.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_PLAINGEMM_H
#define PCRT_DEVICE_PLAINGEMM_H

#include "pcrt/pcrt.h"

#include <bit>
#include <cstdint>

namespace pcrt {

inline float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Runs `desc` (batch and all) on one thread.
void plainGemm(const pcrt_gemm_desc &desc, const void *a, const void *b, void *c, const float *bias);

} // namespace pcrt

#endif // PCRT_DEVICE_PLAINGEMM_H
