//===- Types.h - Element types --------------------------------------------===//
// Conversions between f32 and bf16. Rounding is the same here, in generated kernels and in the interpreter.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_TYPES_H
#define PCRT_BASE_TYPES_H

#include "pcrt/pcrt.h"

#include <bit>
#include <cstdint>

namespace pcrt {

/// Bytes of one element of a pcrt_dtype other than I4.
inline int64_t elementBytes(int32_t dtype) { return dtype == PCRT_I8 ? 1 : dtype == PCRT_BF16 ? 2 : 4; }

/// Bytes of `count` elements.
inline int64_t bytesOf(int32_t dtype, int64_t count) {
  return dtype == PCRT_I4 ? (count + 1) / 2 : count * elementBytes(dtype);
}

/// Whether elements are codes of weights.
inline bool isCode(int32_t dtype) { return dtype == PCRT_I8 || dtype == PCRT_I4; }

inline float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Converts `count` numbers.
inline void toFloats(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = bf16ToFloat(from[i]);
}
inline void toBf16(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = floatToBf16(from[i]);
}

} // namespace pcrt

#endif // PCRT_BASE_TYPES_H
