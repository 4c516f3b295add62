//===- OptimizerOp.h - Definitions of optimizers ---------------------------------------------===//
// The class of the op in PCDefinitions.td, and the dims of the values in its region, whose types have none.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_OPTIMIZEROP_H
#define PC_IR_OPTIMIZEROP_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCDefinitionOps.h.inc"

namespace pc {

/// For each value of a definition, the number of each of its dims in the `dims` of the definition.
using DefinedDims = llvm::DenseMap<mlir::Value, llvm::SmallVector<int, 3>>;

/// Computes the dims of all values of `optimizer`. Fails with an error if operands of an op do not fit.
llvm::FailureOr<DefinedDims> dimsOf(OptimizerOp optimizer);

/// The number (`PCRT_HYPER_LR`, ...) of a scalar that a run provides; -1 for another name.
int hyperNumber(llvm::StringRef scalar);

} // namespace pc

#endif
