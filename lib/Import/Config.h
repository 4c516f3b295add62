//===- Config.h - config.json of the supported families, in one struct --------------===//
// Input: the text of config.json. Result: a ModelConfig. The model builder reads nothing else, so it does not know the
// key names of a family. A value that the builder cannot represent is refused here.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_CONFIG_H
#define PC_LIB_IMPORT_CONFIG_H

#include "Family.h"
#include "mlir/IR/Diagnostics.h"
#include "pc/IR/PC.h"
#include "pc/Import/Import.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Rotary embeddings: one frequency per pair of elements of a head, and the factor of cos and sin.
struct Rotation {
  llvm::SmallVector<float> frequencies;
  double scale = 1;
  double ofScores = 1; ///< a further factor of scores, for latent queries and keys
};

/// The data that the model builder needs, with sizes in elements. It is the result of parseConfig. `heads` is a
/// multiple of `kvHeads`; vectors by layer are empty or have one entry per layer.
struct ModelConfig {
  std::string type;  ///< "gpt2", "llama", ...
  std::string text;  ///< config.json
  std::string means; ///< JSON: the values that keys of a checkpoint's config.json may have (`config_means`)
  int64_t vocab = 0, embed = 0, layers = 0, heads = 0, kvHeads = 0, headDim = 0, ffn = 0, positions = 0, tokenTypes = 0;
  ActivationKind activation = ActivationKind::Silu;
  double normEps = 1e-5, initStd = 0.02;
  const Family *family = nullptr; ///< the parts of its layers
  bool tied = false, qkvBias = false, outBias = false, mlpBias = false;
  bool parallel = false;     ///< attention and MLP read the same input
  bool normAfterSum = false; ///< norms are after residual sums, not before blocks; no final norm
  /// Probabilities of dropout in 65536ths (`#pc.drop`), 0 for none: after the embedding, on the weights of attention,
  /// and before each residual sum.
  int64_t embedDrop = 0, attentionDrop = 0, residualDrop = 0;
  int64_t ffnDrop = 0, finalDrop = 0; ///< inside of MLPs, and after the last norm
  int64_t padding = -1;               ///< the row of the embedding without a gradient; -1: none
  int64_t firstPosition = 0;          ///< the row of the position table for position 0
  double scale = 1;                   ///< the factor of scores
  bool scaleByLayer = false;          ///< GPT-2: scores also divided by layer + 1
  double scoreCap = 0, logitCap = 0;  ///< caps of scores and logits; 0: none
  double headScale = 1;               ///< a factor of the head's input
  int64_t encoderLayers = 0;          ///< layers of an encoder before the `layers`
  int64_t startToken = 0;             ///< the token that a decoder reads before the first target
  int64_t buckets = 0, farthest = 0;  ///< buckets of distances, if scores have addends by distance
  /// If there are two, the second one is for layers with windows.
  llvm::SmallVector<Rotation, 2> ropes;
  llvm::SmallVector<int64_t> windows; ///< the window of each layer, 0 without a window; empty if no layer has a window
  /// Mixture of experts: the number of experts, the number of experts per token, and their width; 0: none.
  int64_t experts = 0, expertsPerToken = 0, expertFfn = 0;
  int64_t capacity = 0;               ///< tokens of a sequence that an expert accepts; 0: all tokens that choose it
  int64_t sharedFfn = 0;              ///< the width of the MLP for every token
  int64_t groups = 1, keptGroups = 1; ///< groups of experts, and the number of them from which a token chooses
  double routingScale = 1;            ///< a factor of the weights of experts
  /// Latent queries, keys and values: the numbers of latent values (0: queries are not latent), and the widths of the
  /// unrotated part of a head, the rotated part, and values.
  int64_t queryRank = 0, keyRank = 0, plainDim = 0, ropeDim = 0, valueDim = 0;
  bool interleaved = false;            ///< rotated pairs are adjacent elements
  double gateSlope = 0, gateLimit = 0; ///< settings of experts with clamped gates
  bool normalizesExperts = false;      ///< the weights of a token's experts are normalized to a sum of 1
  llvm::SmallVector<bool> hasExperts;  ///< by layer
  double balance = 0;                  ///< the factor of the loss for uneven load of experts; 0: no such loss
  llvm::SmallVector<bool> sliding;     ///< by layer: whether it has a window, of any length
  /// Tensors that checkpoints may have as copies of others: pairs of a copy and its original.
  std::vector<std::pair<std::string, std::string>> ties;
};

constexpr int64_t defaultSequence = 1024; ///< tokens; models that can read fewer use fewer

/// The tokens of a sequence: those of the options, or else as many as the model can read, at most `defaultSequence`.
int64_t sequenceOf(const ModelConfig &config, const ImportOptions &options);

/// Parses and checks `text` for `options.sequence`, with `options.dropout`; errors name the key. `emitError` and
/// `emitWarning` come with the file's location.
llvm::FailureOr<ModelConfig> parseConfig(llvm::StringRef text, const ImportOptions &options,
                                         llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                         llvm::function_ref<mlir::InFlightDiagnostic()> emitWarning);

} // namespace pc

#endif
