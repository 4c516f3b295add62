//===- CodeBlocks.h - The arithmetic of codes of 8 bits -------------------===//
// Hosts and devices compile the same functions, so that both compute the same bits. The functions must not be compiled
// with contraction, because products are rounded before they are added.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_CODEBLOCKS_H
#define PCRT_COMM_CODEBLOCKS_H

#include "pcrt/codes.h"

#ifdef __CUDA__
#define PCRT_ON_BOTH __attribute__((host, device))
#else
#define PCRT_ON_BOTH
#endif

namespace pcrt {

/// Bytes of the codes of a whole block.
constexpr int64_t codeBlockBytes = 4 + PCRT_CODES_BLOCK;

/// Writes the codes of `count` elements, at most one block, and fills the last word with zeros.
PCRT_ON_BOTH inline void encodeBlock(const float *from, int64_t count, char *to) {
  constexpr float largestCode = 127;
  float largest = 0, sum = 0; // if a number is not finite, `sum` - `sum` is NaN
  for (int64_t i = 0; i < count; ++i) {
    float magnitude = __builtin_fabsf(from[i]);
    largest = largest < magnitude ? magnitude : largest;
    sum += from[i] - from[i];
  }
  float scale = sum == 0 ? largest / largestCode : __builtin_nanf("");
  *reinterpret_cast<float *>(to) = scale;
  auto *codes = reinterpret_cast<signed char *>(to + sizeof scale);
  for (int64_t i = 0; i < (count + 3) / 4 * 4; ++i)
    codes[i] = 0;
  if (!(scale > 0)) // all zeros, too small for a scale, or not finite
    return;
  constexpr float whole = 3 << 22; // floats of this size are integers, so adding it rounds to the nearest integer
  for (int64_t i = 0; i < count; ++i) {
    float code = from[i] / scale;
    code = code < -largestCode ? -largestCode : largestCode < code ? largestCode : code;
    codes[i] = static_cast<signed char>(code + whole - whole);
  }
}

/// Decodes `count` elements of a block from `first` on. Writes them to `to`, or adds them to it.
PCRT_ON_BOTH inline void decodeBlock(const char *block, int64_t first, int64_t count, bool adds, float *to) {
  const float scale = *reinterpret_cast<const float *>(block);
  const auto *codes = reinterpret_cast<const signed char *>(block + sizeof scale) + first;
  for (int64_t i = 0; i < count; ++i) {
    float product = float(codes[i]) * scale; // rounded before it is added
    to[i] = adds ? to[i] + product : product;
  }
}

} // namespace pcrt

#endif // PCRT_COMM_CODEBLOCKS_H
