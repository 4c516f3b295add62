//===- Model.h - Builds the model program of a configuration ------------------------===//
// Input: a checked ModelConfig. Result: a module with one `pc.program` and one function. Building does not fail.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_MODEL_H
#define PC_LIB_IMPORT_MODEL_H

#include "Config.h"
#include "mlir/IR/OwningOpRef.h"
#include "pc/Import/Import.h"

namespace pc {
/// `func @model`: leaves, forward pass, logits and the mean cross-entropy over batch x sequence tokens.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(mlir::MLIRContext *context, const ModelConfig &config,
                                             const ImportOptions &options);
} // namespace pc

#endif
