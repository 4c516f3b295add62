//===- Import.h - Hugging Face directory -> model program ----------------------------===//
// Reads config.json (as transformers 4 and 5 write it) and checks the safetensors next to it, if there are any. It does
// not copy the weights: each parameter names its tensor and the part of the tensor that it holds.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IMPORT_IMPORT_H
#define PC_IMPORT_IMPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "pcrt/pcrt.h"

#include <optional>

namespace pc {

/// Options of a training run that are not in config.json. Sizes are in sequences and tokens; importModel checks them.
struct ImportOptions {
  int64_t batch = 0;                              ///< global batch, in sequences
  std::optional<int64_t> sequence = std::nullopt; ///< tokens per sequence; unset: as long as the model's, at most 1024
  std::optional<double> dropout = std::nullopt;   ///< replaces all dropout probabilities in config.json
  /// The token that ends a document. A sequence then holds several documents: attention does not cross their ends, and
  /// positions restart in each. Unset: a sequence is one document.
  std::optional<int64_t> documents = std::nullopt;
  /// Mixture of experts: the number of tokens of a sequence that an expert accepts, beginning with the first. Unset:
  /// all.
  std::optional<int64_t> expertCapacity = std::nullopt;
  double labelSmoothing = 0; ///< the share of the loss that is spread evenly over all classes, in [0, 1)
  double zLoss = 0;          ///< adds this times the square of the logits' logsumexp to the loss of each target
  std::optional<int64_t> targets = std::nullopt; ///< targets per sequence, for models with a separate decoder
};

/// The model program of the directory. Returns null after emitting an error; `status` then is PCRT_BAD_INPUT (bad
/// configuration, or weights in another format than safetensors) or PCRT_BAD_DATA (bad weights). Without weights, the
/// program's `weights` is not set and a run initialises them at random. Architectures: gpt2 and the rows of
/// Families.cpp. An option that changes the numbers and is not supported is an error; an unknown key is a warning.
mlir::OwningOpRef<mlir::ModuleOp> importModel(mlir::MLIRContext *context, llvm::StringRef directory,
                                              const ImportOptions &options, pcrt_status &status);

} // namespace pc

#endif
