//===- Codes.h - Sums whose addends travel as codes of 8 bits -------------===//
// Every member rounds its addend by itself, all get all codes, and each adds the same codes in coordinate order: the
// sum is the same, bit by bit, on all of them. It differs from that of the addends by at most 1/254 of the largest
// magnitude in the block (pcrt/codes.h), for each addend.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_CODES_H
#define PCRT_COMM_CODES_H

#include "comm/Comm.h"

namespace pcrt {

/// Writes the codes of `elements` elements of f32, pcrt_code_words(elements) words.
void encode(const float *from, int64_t elements, void *codes, const ParallelFor &parallelFor);

/// out = the sum of what `members` codes mean, which lie one after the other; in their order.
void addDecoded(const void *codes, int members, int64_t elements, float *out, const ParallelFor &parallelFor);

/// Carries out `desc`, an all_reduce with codes: a sum of f32. `memory`: where `desc.codes` leads.
pcrt_status sumByCodes(Comm &comm, const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       char *memory, const ParallelFor &parallelFor);

} // namespace pcrt

#endif // PCRT_COMM_CODES_H
