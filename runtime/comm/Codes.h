//===- Codes.h - Sums whose addends travel as codes of 8 bits -------------===//
// Every member encodes its addend, and all members get all codes. Each member adds the same codes in coordinate order,
// so the sum has the same bits on all of them. For each addend, the sum differs from the exact sum by at most 1/254 of
// the largest magnitude in the block (pcrt/codes.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_CODES_H
#define PCRT_COMM_CODES_H

#include "comm/Comm.h"

namespace pcrt {

/// Writes the codes of `elements` elements of f32. The codes take pcrt_code_words(elements) words.
void encode(const float *from, int64_t elements, void *codes, const ParallelFor &parallelFor);

/// Decodes the codes of `members` members, which are stored one after the other, and adds the numbers to `out` in the
/// order of the members.
void addDecoded(const void *codes, int members, int64_t elements, float *out, const ParallelFor &parallelFor);

/// Carries out `desc`, an all_reduce with codes: a sum of f32. `memory` is the memory to which `desc.codes` refers.
/// Returns the status of the all_gather that carries the codes.
pcrt_status sumByCodes(Comm &comm, const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       char *memory, const ParallelFor &parallelFor);

} // namespace pcrt

#endif // PCRT_COMM_CODES_H
