//===- Order.h - The order of the sequence in a step program ---------------------------------===//
// `zigzag` in pc.program permutes the sequence. Tokens then have another order, and so do all values that are indexed
// by tokens. This check finds out whether the result is the same. It uses the proof's own rules and does not depend on
// pc-zigzag.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_ORDER_H
#define PC_LIB_PROOF_ORDER_H

#include "pc/IR/PC.h"

namespace pc::proof {

/// Checks that a step program whose sequence is in zigzag order computes the same as with the sequence in its own
/// order. Fails after an error at the op that depends on the order.
llvm::LogicalResult checkOrder(mlir::ModuleOp step);

} // namespace pc::proof

#endif
