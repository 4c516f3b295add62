//===- Config.h - config.json of the supported families, in one struct --------------===//
#ifndef PC_LIB_IMPORT_CONFIG_H
#define PC_LIB_IMPORT_CONFIG_H

#include "mlir/IR/Diagnostics.h"
#include "pc/IR/PC.h"
#include "pc/Import/Import.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// What the model builder needs to know; sizes in elements.
struct ModelConfig {
  std::string type;  ///< "gpt2", "llama", ...
  std::string text;  ///< config.json, compact
  std::string means; ///< JSON: the values that keys of a checkpoint's config.json may have (`config_means`)
  int64_t vocab = 0, embed = 0, layers = 0, heads = 0, kvHeads = 0, headDim = 0, ffn = 0, positions = 0;
  ActivationKind activation = ActivationKind::Silu;
  double normEps = 1e-5, initStd = 0.02;
  bool tied = false, qkvBias = false, outBias = false, mlpBias = false, qkNorm = false;
  bool fused = false; ///< q, k and v are one tensor of the file, and so are gate and up
  /// Of dropout, in 65536ths (`#pc.drop`), 0 for none: behind the embedding, of the weights of attention, in front of
  /// each residual sum.
  int64_t embedDrop = 0, attentionDrop = 0, residualDrop = 0;
  int64_t padding = -1;                        ///< the row of the embedding without a gradient; -1: none
  bool scaleByLayer = false;                   ///< GPT-2: scores also divided by layer + 1
  bool scaleScores = true;                     ///< scores divided by sqrt(head_dim)
  llvm::SmallVector<float> inverseFrequencies; ///< rotary; head_dim / 2 entries
};

/// Parses and checks `text` for `options.sequence`, with `options.dropout`; errors name the key. `emitError` and
/// `emitWarning` come with the file's location.
llvm::FailureOr<ModelConfig> parseConfig(llvm::StringRef text, const ImportOptions &options,
                                         llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                         llvm::function_ref<mlir::InFlightDiagnostic()> emitWarning);

} // namespace pc

#endif
