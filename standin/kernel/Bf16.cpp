//===- Bf16.cpp - The functions that compiled code calls to round to bf16 -===//
// Older libgcc lacks these. Their calling convention is that of clang's __bf16, so clang compiles this file.
//===----------------------------------------------------------------------===//
#include <cstdint>
#include <cstring>

static uint16_t rounded(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffff) > 0x7f800000)
    bits |= 0x400000; // stays a NaN
  else
    bits += 0x7fff + (bits >> 16 & 1);
  return uint16_t(bits >> 16);
}

extern "C" __attribute__((weak)) __bf16 __truncsfbf2(float f) {
  uint16_t bits = rounded(f);
  __bf16 result;
  std::memcpy(&result, &bits, 2);
  return result;
}

extern "C" __attribute__((weak)) __bf16 __truncdfbf2(double d) {
  // Rounds to odd in float first, so that the second rounding gives the result of one rounding from double.
  float f = float(d);
  if (double(f) != d) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    if ((double(f) < 0 ? -double(f) : double(f)) > (d < 0 ? -d : d))
      --bits;
    bits |= 1;
    std::memcpy(&f, &bits, 4);
  }
  return __truncsfbf2(f);
}
