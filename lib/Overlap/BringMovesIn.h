//===- BringMovesIn.h - Moves communication into the body of a single microbatch -------===//
// Moves the moves of an accumulation. The computed values do not change.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_BRINGMOVESIN_H
#define PC_LIB_OVERLAP_BRINGMOVESIN_H

#include "pc/IR/PC.h"

namespace pc {

/// With one microbatch, each result of `accumulate` is the value that the body yields. A move that is the only reader
/// of a result goes into the body, where it can start as soon as that value is computed. A gather before the body that
/// only the body reads also goes into the body, because moves of one communicator must not be in flight across the
/// start of the body. With several microbatches nothing changes, because one move of a sum has less traffic than one
/// move per addend, and one gather has less than one per microbatch.
void bringMovesIn(AccumulateOp accumulate);

} // namespace pc

#endif
