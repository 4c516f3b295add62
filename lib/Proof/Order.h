//===- Order.h - The order of the sequence in a step program ---------------------------------===//
// `zigzag` in pc.program renames the indices of the sequence: tokens come in another order, and so does all that is
// made of them by index. Whether that computes the same is found here from the proof's own rules, not from what
// pc-zigzag found.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_ORDER_H
#define PC_LIB_PROOF_ORDER_H

#include "pc/IR/PC.h"

namespace pc::proof {

/// Whether a step program whose sequence is in zigzag order computes what it would compute with the sequence in its own
/// order; fails after an error where it does not.
llvm::LogicalResult checkOrder(mlir::ModuleOp step);

} // namespace pc::proof

#endif
