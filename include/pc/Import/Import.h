//===- Import.h - Hugging Face directory -> model program ----------------------------===//
// Reads config.json (as transformers 4 and 5 write it) and checks the safetensors next to it, if any. It does not copy
// the weights: each parameter names its tensor and which part of it it is.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IMPORT_IMPORT_H
#define PC_IMPORT_IMPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "pcrt/pcrt.h"

#include <optional>

namespace pc {

/// What config.json does not say about a training run. Sizes are in sequences and tokens; importModel checks them.
struct ImportOptions {
  int64_t batch = 0;                              ///< global batch, in sequences
  std::optional<int64_t> sequence = std::nullopt; ///< tokens per sequence; unset: as long as the model's, at most 1024
  std::optional<double> dropout = std::nullopt;   ///< replaces all probabilities of dropout in config.json
  /// The token that ends a document. A sequence then holds several documents: attention does not cross their ends, and
  /// positions restart in each. Unset: a sequence is one document.
  std::optional<int64_t> documents = std::nullopt;
  /// Mixture of experts: how many tokens of a sequence an expert takes, the first ones that choose it; unset: all.
  std::optional<int64_t> expertCapacity = std::nullopt;
  double labelSmoothing = 0; ///< the share of the loss that all classes have alike, in [0, 1)
  double zLoss = 0;          ///< adds this times the square of the logits' logsumexp to the loss of each target
  std::optional<int64_t> targets = std::nullopt; ///< of models with a decoder of their own: targets per sequence
};

/// The model program of the directory, or null after an error was emitted; `status` then is PCRT_BAD_INPUT
/// (configuration, or weights of another form than safetensors) or PCRT_BAD_DATA (weights). Without weights the
/// program's `weights` is not set: a run draws them. Architectures: gpt2 and the rows of Families.cpp. An option
/// that changes the numbers and is not supported is an error; a key that is not known is a warning.
mlir::OwningOpRef<mlir::ModuleOp> importModel(mlir::MLIRContext *context, llvm::StringRef directory,
                                              const ImportOptions &options, pcrt_status &status);

} // namespace pc

#endif
