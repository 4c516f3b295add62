/* Codes of 8 bits: addends of f32 are sent in this lossy form if the plan asks for it (pcrt_move_desc::codes).
 *
 * The elements of a rank are cut into blocks of 256, in order; the last one may be shorter. A block travels as its
 * scale, an f32, and a signed byte for each element, filled up to a multiple of 4: element = byte * scale, scale =
 * largest magnitude / 127, byte = the nearest whole number to element / scale, ties to even. A block with an element
 * that is not finite has a NaN for its scale. The compiler, which plans the memory, and the runtime, which fills it,
 * read the sizes here.
 */
#ifndef PCRT_CODES_H
#define PCRT_CODES_H

#include <stdint.h>

#define PCRT_CODES_BLOCK 256

/** The number of words of 4 bytes in the codes of `elements` elements. */
static inline int64_t pcrt_code_words(int64_t elements) {
  int64_t rest = elements % PCRT_CODES_BLOCK;
  return elements / PCRT_CODES_BLOCK * (1 + PCRT_CODES_BLOCK / 4) + (rest ? 1 + (rest + 3) / 4 : 0);
}

/** In the memory of a move, this rank's codes come first: the offset in bytes of the codes of all `members`, and the
 * bytes of both together. */
static inline int64_t pcrt_codes_of_all(int64_t elements) { return (4 * pcrt_code_words(elements) + 63) / 64 * 64; }
static inline int64_t pcrt_codes_bytes(int64_t elements, int64_t members) {
  return pcrt_codes_of_all(elements) + 4 * members * pcrt_code_words(elements);
}

#endif
