//===- RowProgram.h - One kernel for a group of row ops -----------------------------------===//
// Writes a group of ops that work row by row as one kernel. RowGraph.h describes the method.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_ROWS_ROWPROGRAM_H
#define PC_LIB_CODEGEN_ROWS_ROWPROGRAM_H

#include "../Emit/Kernel.h"

namespace pc {

/// Emits `op`, a row op or a fusion of row ops, into `kernel`. Items are rows. Fails with an error at an op that has no
/// row kernel.
llvm::LogicalResult emitRowKernel(mlir::Operation *op, Kernel &kernel);

} // namespace pc

#endif
