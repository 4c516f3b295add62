//===- Dispatch.h - Values that are sent to experts and back ----------------------===//
// Mixture of experts: the last operand of a routed einsum is the mask [tokens..., experts], which is 1 for the experts
// that a token has chosen. With these functions, passes can store and send only the entries that exist.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_DISPATCH_H
#define PC_IR_DISPATCH_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether a routed einsum copies the numbers of a token to each of its experts: "b s e, b s n -> b s n e".
bool isDispatch(EinsumOp op);
/// Whether a routed einsum adds up the results of a token's experts: "b s n e, b s n -> b s e".
bool isCombine(EinsumOp op);

/// Whether a router chooses experts by `value`, or computes scores from it.
bool isOfRouter(mlir::Value value);

/// Whether `dims` are the dims of tokens and one more. The dims of tokens are all dims of a mask but the last one.
bool areOfTokens(llvm::ArrayRef<int> dims, llvm::ArrayRef<int> mask);
/// Whether `dims` are the dims of the mask and one more.
bool areOfEntries(llvm::ArrayRef<int> dims, llvm::ArrayRef<int> mask);

} // namespace pc

#endif
