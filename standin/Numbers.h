//===- Numbers.h - Bf16 and matrix products for the library stand-ins -----===//
// The conversions and products of CublasLt.cpp and TensorGraph.cpp.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_NUMBERS_H
#define PC_STANDIN_NUMBERS_H

#include <cstdint>
#include <cstring>

namespace pc::standin {

inline float fromBf16(uint16_t value) {
  uint32_t bits = uint32_t(value) << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

/// Rounds to nearest, ties to even; NaNs stay NaNs.
inline uint16_t toBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (value != value)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Computes c[m, n] = a[m, k] b[k, n] in f32, row major with leading dims; with `ta` or `tb` the stored matrix is the
/// transpose. It uses oneDNN if that is installed, and a plain loop otherwise.
void multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
              int64_t ldb, float *c, int64_t ldc);

} // namespace pc::standin

#endif // PC_STANDIN_NUMBERS_H
