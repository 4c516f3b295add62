//===- RowProgram.h - One kernel for a group of row ops -----------------------------------===//
// Ops are expanded into a graph of nodes (loads, arithmetic, reductions along the row). Nodes are put into segments: one loop over the
// columns each; what a reduction yields is known after its segment.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_ROWPROGRAM_H
#define PC_LIB_CODEGEN_ROWPROGRAM_H

#include "Kernel.h"

namespace pc {

/// Emits `op` (a row op, or a fusion of row ops) into `kernel`: items are rows. Fails with an error at an op it cannot expand.
llvm::LogicalResult emitRowKernel(mlir::Operation *op, Kernel &kernel);

} // namespace pc

#endif
