/* Values in 8 bits: codes, and one scale for each block of elements. An element is the number of
 * its code times the scale of its block.
 *
 * Numbers of codes are those of the dynamic code of bitsandbytes (T. Dettmers et al., "8-bit optimizers via block-wise
 * quantization", 2021): 0, 1, and for each of seven powers of ten the middles of equal intervals of [0.1, 1] times the
 * power, twice as many for each larger power. The signed code has the negatives of these numbers, except -1, too; the
 * unsigned one has twice as many intervals instead.
 *
 * Numbers other than 0 and 1 have indices: with n intervals, those of a power are n to 2 n - 1, so within a power a
 * number is a linear function of its index. The byte of a signed number is its index, or the index's negative; 1 is
 * byte -128. The byte of an unsigned number is its index - 1; 1 is byte 255. The byte of 0 is 0 in both.
 *
 * The scale is the element with the largest magnitude, with its sign, so its number is 1. Coding decoded values again
 * therefore yields the same codes and scales. A block of smaller elements than PCRT_LEAST_SCALE becomes zeros: products
 * of scales and numbers would lose bits.
 *
 * The linear code, for matrices that the passes read, has the integers from -127 to 127 as numbers. Its scale is the
 * largest magnitude divided by 127, or NaN if an element is not finite. The compiler, which writes kernels, its
 * interpreter, and the runtime, which converts checkpoints, read the numbers here. */
#ifndef PCRT_BLOCK_CODES_H
#define PCRT_BLOCK_CODES_H

#include "pcrt/description.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/** Elements that share a scale. */
#define PCRT_STATE_BLOCK 256
/** Scales below this are 0. */
#define PCRT_LEAST_SCALE 1e-30
#define PCRT_POWERS 7
/** The largest number of the linear code. */
#define PCRT_LARGEST_LINEAR 127

/** The name of the state with the scales of a state: "exp_avg" PCRT_SCALES. */
#define PCRT_SCALES "_scale"

/** Whether the state of this name has the unsigned code. */
static inline int pcrt_state_is_unsigned(const char *name) { return strcmp(name, PCRT_EXP_AVG_SQ) == 0; }

/** The index, among scales of this shape, of the scale of element `element` of a value. Blocks divide its shape. */
static inline int64_t pcrt_scale_of_element(int64_t element, int32_t rank, const int64_t *shape,
                                            const int64_t *scales) {
  int64_t at = 0, stride = 1;
  for (int32_t dim = rank; dim-- > 0; element /= shape[dim]) {
    at += element % shape[dim] / (shape[dim] / scales[dim]) * stride;
    stride *= scales[dim];
  }
  return at;
}

/** The numbers of one code. */
typedef struct pcrt_dynamic_code {
  double slope[PCRT_POWERS], intercept[PCRT_POWERS]; /* number = intercept + slope * index */
  double from[PCRT_POWERS];   /* magnitudes from here on are nearest to a number of this power, or of a later one */
  int32_t first[PCRT_POWERS]; /* the first index of a power */
  double one;                 /* magnitudes from here on are nearest to 1 */
  int32_t of_one;             /* the index that stands for 1 */
} pcrt_dynamic_code;

/** The number with this index of power `power`. */
static inline double pcrt_number_of(const pcrt_dynamic_code *code, int power, double index) {
  return code->intercept[power] + code->slope[power] * index;
}

static inline pcrt_dynamic_code pcrt_dynamic(int is_unsigned) {
  pcrt_dynamic_code code;
  double last = 0;
  for (int power = 0; power < PCRT_POWERS; ++power) {
    double ten = pow(10, power - PCRT_POWERS + 1);
    int32_t n = (is_unsigned ? 2 : 1) << power;
    code.first[power] = n;
    code.slope[power] = 0.9 * ten / n;
    code.intercept[power] = ten * (0.45 / n - 0.8);
    code.from[power] = (last + pcrt_number_of(&code, power, n)) / 2;
    last = pcrt_number_of(&code, power, 2 * n - 1);
  }
  code.one = (last + 1) / 2;
  code.of_one = is_unsigned ? 256 : 128;
  return code;
}

/** The number of a byte, as kernels compute it: one rounding to f32. */
static inline float pcrt_number_of_byte(const pcrt_dynamic_code *code, int8_t byte) {
  const int is_unsigned = code->of_one == 256;
  int32_t index = is_unsigned ? (byte ? (uint8_t)byte + 1 : 0) : byte < 0 ? -(int32_t)byte : byte;
  if (index == 0 || index == code->of_one)
    return index ? 1.0f : 0.0f;
  int power = 0;
  while (power + 1 < PCRT_POWERS && index >= code->first[power + 1])
    ++power;
  float number = fmaf((float)index, (float)code->slope[power], (float)code->intercept[power]);
  return !is_unsigned && byte < 0 ? -number : number;
}

/** The byte whose number is nearest to `x`, which is at most 1. */
static inline int8_t pcrt_byte_of(const pcrt_dynamic_code *code, double x) {
  const int is_unsigned = code->of_one == 256;
  double size = x < 0 ? (is_unsigned ? 0 : -x) : x;
  int32_t index = 0;
  if (size >= code->one && x > 0) {
    index = code->of_one;
  } else if (size >= code->from[0]) {
    int power = 0;
    while (power + 1 < PCRT_POWERS && size >= code->from[power + 1])
      ++power;
    double at = floor((size - code->intercept[power]) / code->slope[power] + 0.5);
    int32_t first = code->first[power], last = 2 * first - 1;
    index = at < first ? first : at > last ? last : (int32_t)at;
  }
  if (is_unsigned)
    return (int8_t)(uint8_t)(index ? index - 1 : 0);
  return index == code->of_one ? (int8_t)-128 : (int8_t)(x < 0 ? -index : index);
}

/** Whether codes are those that are wanted, apart from a few elements near the middle of two numbers, which may be
 * rounded to either. Neighbouring numbers have neighbouring bytes, modulo 256. */
static inline int pcrt_are_codes(const int8_t *made, const int8_t *wanted, int64_t count) {
  int64_t neighbours = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint8_t difference = (uint8_t)(made[i] - wanted[i]);
    if (difference > 1 && difference < 255)
      return 0;
    neighbours += difference != 0;
  }
  return neighbours <= 2 + count / 500;
}

/** The scale of a block whose largest and smallest elements are these, or 0. */
static inline double pcrt_scale_of(double largest, double smallest) {
  double scale = largest >= -smallest ? largest : smallest;
  return scale < PCRT_LEAST_SCALE && scale > -PCRT_LEAST_SCALE ? 0 : scale;
}

#endif
