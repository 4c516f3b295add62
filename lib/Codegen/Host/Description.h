//===- Description.h - The JSON description of a program ------------------------------===//
// The runtime reads a program's calls from tables, and its data from this description.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_DESCRIPTION_H
#define PC_LIB_CODEGEN_HOST_DESCRIPTION_H

#include "pc/IR/PC.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Whether two outputs are the same value in different microbatches.
bool isSameOutput(mlir::Operation *a, mlir::Operation *b);

/// Describes buffers, sources, inputs and outputs with the schema of runtime/README.md. `outputs` are in the order of
/// their numbers. `microbatches` is used for a program without an accumulation.
llvm::json::Object describeProgram(mlir::ModuleOp planned, llvm::ArrayRef<mlir::Operation *> outputs,
                                   int64_t arenaBytes, int64_t microbatches, llvm::json::Value report);

/// The byte offset of a value in the arena. Its type must have a home.
int64_t homeOf(mlir::Value value);
/// Bytes of a tensor.
int64_t bytesOf(mlir::Type type);

} // namespace pc

#endif
