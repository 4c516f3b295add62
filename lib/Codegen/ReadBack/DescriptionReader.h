//===- DescriptionReader.h - Reads the JSON description of a program back --------------------===//
// This is a part of the check that an executable agrees with its planned program (verifyTables).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_DESCRIPTIONREADER_H
#define PC_LIB_CODEGEN_READBACK_DESCRIPTIONREADER_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether a description agrees with the planned program in its name and sizes, its leaves and their homes, and its
/// outputs. `outputs` has the outputs in the order of their numbers. Emits an error if not.
bool describes(mlir::ModuleOp planned, llvm::StringRef description, llvm::ArrayRef<mlir::Operation *> outputs);

} // namespace pc

#endif
