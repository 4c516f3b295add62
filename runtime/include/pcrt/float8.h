/* The floats of 8 bits of training in fp8: E4M3 without infinities, and E5M2 (OCP 8-bit Floating Point Specification).
 *
 * A code is one byte: sign, exponent, mantissa. A value is the number of its code times the scale of its block. The
 * scale is the smallest power of two with which the largest magnitude of the block does not exceed the largest number
 * of the format, so dividing and multiplying by it is exact, and encoding decoded values again yields the same values.
 * Rounding is to nearest, ties to even, and saturates. The interpreter, kernels and the stand-in follow this file. */
#ifndef PCRT_FLOAT8_H
#define PCRT_FLOAT8_H

#include <math.h>
#include <stdint.h>

/** The exponent of the largest number, whose mantissa is 1.75 in both formats: 448 and 57344. */
#define PCRT_E4M3_EXPONENT 8
#define PCRT_E5M2_EXPONENT 15

/** The end of the names of states with the largest magnitudes of operands in the last steps. A checkpoint may lack such
 * states; then they start as zeros. */
#define PCRT_HISTORY "_history"

/** A format. */
typedef struct pcrt_float8 {
  int mantissa; /* bits after the point */
  int bias;     /* of the exponent */
  int exponent; /* of the largest number */
} pcrt_float8;

static inline pcrt_float8 pcrt_e4m3(void) {
  pcrt_float8 format = {3, 7, PCRT_E4M3_EXPONENT};
  return format;
}
static inline pcrt_float8 pcrt_e5m2(void) {
  pcrt_float8 format = {2, 15, PCRT_E5M2_EXPONENT};
  return format;
}

static inline double pcrt_float8_largest(pcrt_float8 format) { return ldexp(1.75, format.exponent); }

/** The number of the format nearest to x. NaN stays NaN. */
static inline double pcrt_round_to_float8(pcrt_float8 format, double x) {
  double size = fabs(x), largest = pcrt_float8_largest(format);
  if (x != x || size == 0)
    return x;
  int exponent = size < ldexp(1, 1 - format.bias) ? 1 - format.bias : ilogb(size);
  double unit = ldexp(1, exponent - format.mantissa), rounded = nearbyint(size / unit) * unit;
  return copysign(rounded < largest ? rounded : largest, x);
}

/** The number of a code. Codes above the largest number are NaN (E5M2 has infinities, which no code here is). */
static inline double pcrt_number_of_float8(pcrt_float8 format, uint8_t byte) {
  int field = (byte & 0x7f) >> format.mantissa, mantissa = byte & ((1 << format.mantissa) - 1);
  double size = field ? ldexp(mantissa + (1 << format.mantissa), field - format.bias - format.mantissa)
                      : ldexp(mantissa, 1 - format.bias - format.mantissa);
  size = size > pcrt_float8_largest(format) ? NAN : size;
  return byte & 0x80 ? -size : size;
}

/** The scale of a block with this largest magnitude, which is NaN if an element is not finite. */
static inline double pcrt_float8_scale(pcrt_float8 format, double largest) {
  if (!(largest < INFINITY))
    return NAN;
  if (largest < 1e-30) /* products of scales and numbers would be too small for f32 */
    return 0;
  int exponent = ilogb(largest);
  return ldexp(1, exponent - format.exponent + (largest > ldexp(1.75, exponent)));
}

#endif
