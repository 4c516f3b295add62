//===- BringMovesIn.h - Moves into the one microbatch of a step ------------------------===//
// Input: an accumulation. Nothing is computed differently; only where moves stand in the program changes.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_BRINGMOVESIN_H
#define PC_LIB_OVERLAP_BRINGMOVESIN_H

#include "pc/IR/PC.h"

namespace pc {

/// With one microbatch, each result of `accumulate` is the value that the body yields. A move that is the only reader
/// of a result goes into the body, where it can start as soon as that value is computed, and so does a gather in front
/// of it that only the body reads: moves of one communicator are in flight before the body or in it, but not across its
/// start. With several microbatches nothing changes, because one move of the sum has less traffic than one of each
/// addend, and one gather than one for each of them.
void bringMovesIn(AccumulateOp accumulate);

} // namespace pc

#endif
