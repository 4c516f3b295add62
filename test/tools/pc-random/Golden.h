//===- Golden.h - The required results of a compiled program for a triple -===//
// Lets the interpreter train a random model, so that test/EndToEnd can compare an executable with it as with PyTorch.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_RANDOM_GOLDEN_H
#define PC_TOOLS_RANDOM_GOLDEN_H

#include "Triple.h"
#include "mlir/IR/MLIRContext.h"

/// Writes into the existing folder `directory`:
/// * config.json and model.safetensors, as Hugging Face would; tokens.bin (raw uint16);
/// * plan.mlir for `pc-compile --plan`;
/// * golden.safetensors by the interpreter: `logits` and `grad.<tensor>` of the first batch, `losses` of three steps of
/// the optimizer with
///   learning rate 1e-3, weight decay 0.1 and clip 1.0 (of one step in evaluation, without gradients).
/// * exact.safetensors: the same where nothing is stored in bf16.
/// Fails after an error.
llvm::LogicalResult writeGolden(mlir::MLIRContext *context, const Triple &triple, llvm::StringRef directory);

#endif
