//===- BringMovesIn.h - Moves of gradients into the backward pass ---------------------===//
#ifndef PC_LIB_OVERLAP_BRINGMOVESIN_H
#define PC_LIB_OVERLAP_BRINGMOVESIN_H

#include "pc/IR/PC.h"

namespace pc {

/// With one microbatch, each result of `accumulate` is the value that the body yields. A move that is the only reader
/// of a result goes into the body, where it can start as soon as that value is computed. With several microbatches
/// nothing changes, because one move of the sum has less traffic than one of each addend.
void bringMovesIn(AccumulateOp accumulate);

} // namespace pc

#endif
