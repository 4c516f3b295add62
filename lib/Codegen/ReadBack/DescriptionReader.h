//===- DescriptionReader.h - The JSON description of a program, read back --------------------===//
// Part of the check that an executable says what the planned program says (verifyTables).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_DESCRIPTIONREADER_H
#define PC_LIB_CODEGEN_READBACK_DESCRIPTIONREADER_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether a description says of the planned program what the program says: what it is, its leaves and where they lie,
/// its `outputs` by their numbers. Emits an error where not.
bool describes(mlir::ModuleOp planned, llvm::StringRef description, llvm::ArrayRef<mlir::Operation *> outputs);

} // namespace pc

#endif
