//===- CheckProgram.h - Checks the assumptions of the interpreter -----------------------------===//
// The interpreter may be given any IR that parses, for example by a test or a fuzzer.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_CHECKPROGRAM_H
#define PC_LIB_REFERENCE_CHECKPROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/PC.h"

namespace pc {
/// Checks that every value is a tensor of static shape and small enough to simulate, that placements and layouts name
/// axes of `mesh` (null: none) that divide the dims, and that the arena is small enough. The verifiers of the phases
/// check most of this, but may not have run. Fails after an error at the op.
llvm::LogicalResult checkProgram(mlir::func::FuncOp function, MeshAttr mesh);
} // namespace pc

#endif
