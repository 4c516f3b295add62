//===- MakeFusion.h - Wraps ops into a fusion ---------------------------------------------===//
// The one function with which passes build `pc.fusion`.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_MAKEFUSION_H
#define PC_LIB_CODEGEN_FUSE_MAKEFUSION_H

#include "pc/IR/PC.h"

namespace pc {

/// Replaces `ops` (in block order) by one fusion before `anchor`. Values that other ops read become its results.
FusionOp makeFusion(llvm::ArrayRef<mlir::Operation *> ops, mlir::Operation *anchor);

} // namespace pc

#endif
