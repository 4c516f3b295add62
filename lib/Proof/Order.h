//===- Order.h - The order of the sequence in a step program ---------------------------------===//
// `zigzag` in pc.program renames the indices of the sequence: tokens come in another order, and so does all that is
// made of them by index. Whether that computes the same is found here from the proof's own rules, not from what
// pc-zigzag found.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_ORDER_H
#define PC_LIB_PROOF_ORDER_H

#include "pc/IR/PC.h"

namespace pc::proof {

/// The ranks whose zigzag order the sequence has in all programs of `module`; 0: its own order, -1: not the same in
/// all.
int64_t orderOf(mlir::ModuleOp module);

/// Whether a step program computes the same with the sequence in its own order and in a zigzag order, whichever it has;
/// fails after an error where it does not.
llvm::LogicalResult checkOrder(mlir::ModuleOp step);

} // namespace pc::proof

#endif
