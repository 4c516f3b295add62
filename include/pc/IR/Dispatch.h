//===- Dispatch.h - What goes to experts and comes back ------------------------------------===//
// Mixture of experts: a routed einsum has, as its last operand, the mask [tokens..., experts] of the experts that each
// token takes. These questions about its operands let passes store and send only the entries that exist.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_DISPATCH_H
#define PC_IR_DISPATCH_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether a routed einsum brings the numbers of a token to each of its experts: "b s e, b s n -> b s n e".
bool isDispatch(EinsumOp op);
/// Whether it adds up what the experts of a token have made: "b s n e, b s n -> b s e".
bool isCombine(EinsumOp op);

/// Whether `dims` are those of tokens, which all but the last dim of a mask are, and one more.
bool areOfTokens(llvm::ArrayRef<int> dims, llvm::ArrayRef<int> mask);
/// Whether `dims` are those of the mask and one more.
bool areOfEntries(llvm::ArrayRef<int> dims, llvm::ArrayRef<int> mask);

} // namespace pc

#endif
