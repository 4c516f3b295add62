//===- BringMovesIn.h - Moves of gradients into the backward pass ---------------------===//
#ifndef PC_LIB_OVERLAP_BRINGMOVESIN_H
#define PC_LIB_OVERLAP_BRINGMOVESIN_H

#include "pc/IR/PC.h"

namespace pc {

/// With one microbatch the sum over microbatches is the one addend, so a move of a result of `accumulate` may as well
/// move what the body yields, as soon as it is there: rewrites the op where such moves are all that reads a result.
/// With several microbatches nothing changes: one move of the sum is less traffic than one of each addend.
void bringMovesIn(AccumulateOp accumulate);

} // namespace pc

#endif
