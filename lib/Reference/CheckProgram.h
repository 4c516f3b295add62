//===- CheckProgram.h - What the interpreter relies on ----------------------------------------===//
#ifndef PC_LIB_REFERENCE_CHECKPROGRAM_H
#define PC_LIB_REFERENCE_CHECKPROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/PC.h"

namespace pc {
/// Every value is a tensor of static shape, small enough to simulate; placements and layouts name axes of `mesh` (null:
/// none) that divide the dims; the arena is small enough. These hold behind the phases' own verifiers, which need not
/// have run. Fails after an error at the op.
llvm::LogicalResult checkProgram(mlir::func::FuncOp function, MeshAttr mesh);
} // namespace pc

#endif
