//===- Patterns.h - What the pass looks for ---------------------------------------------------===//
// Each function tries to find its ops in pieces that end at `op`. On success it builds the op before `op`, replaces the
// uses of op's result, and leaves the pieces, which may have other readers; else it changes nothing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_RAISE_PATTERNS_H
#define PC_LIB_RAISE_PATTERNS_H

#include "pc/IR/PC.h"

namespace pc {

/// gamma x / rms(x) or gamma (x - mean) / std [+ beta]: rms_norm or layer_norm.
bool raiseNorm(mlir::Operation *op);

/// e^x / (sum of e^x along one dim): softmax.
bool raiseSoftmax(mlir::Operation *op);

/// log(sum of e^x along one dim), also of x less a number per row that is added again: logsumexp.
bool raiseLogSumExp(mlir::Operation *op);

/// logsumexp(x) - x[target]: cross_entropy.
bool raiseCrossEntropy(mlir::Operation *op);

/// sigmoid, silu and gelu_tanh.
bool raiseActivation(mlir::Operation *op);

/// softmax(q k^T) v: attention. Runs after raiseSoftmax.
bool raiseAttention(mlir::Operation *op);

} // namespace pc

#endif
