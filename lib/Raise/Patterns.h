//===- Patterns.h - The patterns of the pass ----------------------------------------------------===//
// Each function looks for the pieces of its op that end at `op`. On success it builds that op before `op` and replaces
// the uses of op's result. The pieces stay, because they may have other readers. Otherwise the function changes
// nothing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_RAISE_PATTERNS_H
#define PC_LIB_RAISE_PATTERNS_H

#include "pc/IR/PC.h"

namespace pc {

/// rms_norm or layer_norm: gamma x / rms(x), or gamma (x - mean) / std with or without + beta.
bool raiseNorm(mlir::Operation *op);

/// softmax: e^x / (sum of e^x along one dim).
bool raiseSoftmax(mlir::Operation *op);

/// logsumexp: log(sum of e^x along one dim). A number per row may be subtracted from x before, and added after.
bool raiseLogSumExp(mlir::Operation *op);

/// cross_entropy: logsumexp(x) - x[target].
bool raiseCrossEntropy(mlir::Operation *op);

/// The activations sigmoid, silu and gelu_tanh.
bool raiseActivation(mlir::Operation *op);

/// attention: softmax(q k^T) v. Runs after raiseSoftmax.
bool raiseAttention(mlir::Operation *op);

/// Routed experts: a sum over experts with weights that are 0 unless a token has chosen the expert.
bool raiseExperts(mlir::Operation *op);

/// Builds the routed form of such a sum before `root`. If `root` is no such sum, builds nothing and returns null.
mlir::Value routedExperts(EinsumOp root);

/// Raises a sum to which each expert contributes with separate ops, as a loop writes it. Packs the parameters of the
/// experts.
bool raiseExpertLoop(mlir::Operation *op);

} // namespace pc

#endif
