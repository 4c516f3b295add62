//===- Lanes.h - Vectors of numbers that products load from memory ---------===//
// Loads f32, bf16 and codes as vectors of f32. The callers are compiled for several kinds of vectors.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_LANES_H
#define PCRT_CPU_LANES_H

#include <cstdint>
#include <cstring>

#define PCRT_ALWAYS __attribute__((always_inline))
#define PCRT_INLINE inline PCRT_ALWAYS

namespace pcrt {

/// Vectors of `lanes` numbers.
template <int lanes> struct Lanes {
  using Floats = float __attribute__((vector_size(lanes * 4)));
  using Words = uint32_t __attribute__((vector_size(lanes * 4)));
  using Integers = int32_t __attribute__((vector_size(lanes * 4)));
  using Halves = uint16_t __attribute__((vector_size(lanes * 2)));
  using Bytes = int8_t __attribute__((vector_size(lanes)));

  static PCRT_INLINE Floats load(const float *from) {
    Floats x;
    memcpy(&x, from, sizeof x);
    return x;
  }
  static PCRT_INLINE Floats load(const uint16_t *from) { // bf16
    Halves x;
    memcpy(&x, from, sizeof x);
    Words wide = __builtin_convertvector(x, Words) << 16;
    Floats result;
    memcpy(&result, &wide, sizeof result);
    return result;
  }
  static PCRT_INLINE Bytes loadBytes(const int8_t *from) {
    Bytes x;
    memcpy(&x, from, sizeof x);
    return x;
  }
  static PCRT_INLINE Floats load(const int8_t *from) { return __builtin_convertvector(loadBytes(from), Floats); }
  static PCRT_INLINE float sum(Floats x) {
    float total = 0;
    for (int lane = 0; lane < lanes; ++lane)
      total += x[lane];
    return total;
  }
};

/// Calls f.operator()<m>() for an m from 1 to `most`.
template <int most, typename F> PCRT_INLINE void forRows(int64_t m, F f) {
  if constexpr (most > 1)
    if (m < most)
      return forRows<most - 1>(m, f);
  f.template operator()<most>();
}

} // namespace pcrt

#endif // PCRT_CPU_LANES_H
