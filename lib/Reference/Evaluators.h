//===- Evaluators.h - Evaluators of composite ops, for Evaluate.cpp -------------------------===//
// The comments list operands and results in order, with shapes by letters: b batch, s queries, t keys, k key heads, g
// query heads per key head, d head size, e width, v vocabulary, n experts.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_EVALUATORS_H
#define PC_LIB_REFERENCE_EVALUATORS_H

#include "pc/Reference/Evaluate.h"

#include <functional>

namespace pc {
class CachedAttentionOp;
class ColumnsOp;
class EmbeddingGradOp;
class EmbeddingOp;
class DecodeOp;
class DecodeSumOp;
class EncodeAddendOp;
class EncodeOp;
class EncodeScaledOp;
class Float8ScaleOp;
class GumbelOp;
using Tensors = llvm::SmallVector<Tensor, 3>;
using Inputs = llvm::ArrayRef<const Tensor *>;

/// x (rows..., e), gamma (e), beta (e) -> y (rows..., e), mean (rows...), rstd (rows...).
Tensors layerNorm(Inputs in, double eps);
/// dy, x (rows..., e), mean, rstd (rows...), gamma (e) -> dx (rows..., e), dgamma, dbeta (e).
Tensors layerNormGrad(Inputs in);
/// x (rows..., e), gamma (e) -> y (rows..., e), rstd (rows...).
Tensors rmsNorm(Inputs in, double eps);
/// dy, x (rows..., e), rstd (rows...), gamma (e) -> dx (rows..., e), dgamma (e).
Tensors rmsNormGrad(Inputs in);
/// x (b, s, heads..., d), cos, sin (s, c): 2c of d elements are rotated, from `first` on, as two halves or as adjacent
/// pairs.
Tensors rope(Inputs in, bool inverse, bool interleaved = false, int64_t first = 0);
/// Whether query s of batch row b sees key t.
using Sight = std::function<bool(int64_t b, int64_t s, int64_t t)>;
/// How attention rounds weights and gradients of scores before it multiplies them.
using Rounding = double (*)(double);
/// Returns the factor of the element at a local index: 0 if it is dropped, and otherwise the factor of kept elements.
/// If an op drops nothing, all factors are 1.
using Mask = std::function<double(llvm::ArrayRef<int64_t>)>;
Mask maskOf(DrawnOpInterface op, const Tensor *random, const EvaluateContext &context);
/// Computes a score from the product of query s and key t.
struct Scores {
  double scale, cap = 0;         ///< 0: no cap
  const Tensor *bias = nullptr;  ///< (k, g, r), for `queries` queries
  const Tensor *sinks = nullptr; ///< (k, g), an extra score of each query
  int64_t queries = 0;

  /// The score.
  double of(double product, int64_t k, int64_t g, int64_t s, int64_t t) const;
  /// The derivative of the score by the product.
  double slope(double product) const;
};
/// q (b, s, k, g, d), k, v (b, t, k, d) -> o (b, s, k, g, d), lse (b, k, g, s). `mask` is the dropout mask of the
/// weights (b, k, g, s, t).
Tensors attention(Inputs in, const Scores &score, const Sight &sees, Rounding factor, const Mask &mask);
/// q, k, v, o, lse, dout -> dq, dk, dv and, if requested, the gradient of the bias, (b, k, g, r).
Tensors attentionGrad(Inputs in, const Scores &score, const Sight &sees, Rounding factor, const Mask &mask,
                      bool ofBias = false);
/// x (b, s, k, g + 2, d), or with cos and sin after it -> q, k, v.
Tensors splitQkv(Inputs in);
/// q, k, v, or with cos and sin after them -> (b, s, k, g + 2, d).
Tensors joinQkv(Inputs in);
/// o1, lse1, o2, lse2 -> o, lse.
Tensors mergeAttention(Inputs in);
/// x (rows..., c) -> e^x over its sum along c.
Tensors softmax(Inputs in);
/// x (rows..., c) -> 1 for the k largest of each row, the first of equal ones, and 0 for the others.
Tensors topK(Inputs in, int64_t k);
/// x (rows..., c) -> 1 for entries of the `keep` best groups of each row, and 0 for the others. The score of a group is
/// the sum of its two largest entries.
Tensors topGroups(Inputs in, int64_t groups, int64_t keep);
/// x (b, s, n) -> x, where it is above 0, for the first `capacity` positions of each (b, n), and 0 elsewhere. `ranks`
/// is the number of ranks in zigzag order, or 0.
Tensors admit(Inputs in, int64_t capacity, int64_t ranks);
/// x (tokens..., n) -> x for the entries of round `round`, and 0 elsewhere. Entries above 0 are numbered by n and then
/// by token, and a round has the numbers from `round` * `limit` on: `limit` of them, or all the rest in the last round.
Tensors roundOfRows(Inputs in, int64_t round, int64_t rounds, int64_t limit);
/// x -> `shape`: entry j along the dim of the op is entry (from + j step) / every, or 0 if there is none.
Tensors columns(ColumnsOp op, Inputs in, const Shape &shape);
/// k times (x...) -> `shape`, (n, x...); the entries after the k-th one are 0.
Tensors stack(Inputs in, const Shape &shape);
/// (n, x...) -> (x...).
Tensors unstack(Inputs in, int64_t index);
/// The dims of a recurrence: for each dim of b, the same dim of a, or -1 if a does not have it; and the dim along which
/// the recurrence runs.
struct RecurrentDims {
  RecurrentDims(const FactorRule &rule, llvm::StringRef along, bool reverse);
  llvm::SmallVector<int> ofA;
  size_t along;
  bool reverse;
};
/// a, b -> h, of b's shape.
Tensors recurrence(Inputs in, const RecurrentDims &dims);
/// a, h, dh -> da, db.
Tensors recurrenceGrad(Inputs in, const RecurrentDims &dims);
/// logits (rows..., v), targets (rows...) -> nll (rows...).
Tensors logSumExp(Inputs in);
Tensors crossEntropy(Inputs in);
/// table (batch..., v, e...), ids (batch..., i...) -> `shape`, (batch..., i..., e...); `offset` is the id of row 0.
Tensors embedding(EmbeddingOp op, Inputs in, const Shape &shape, int64_t offset);
/// dy (batch..., i..., e...), ids (batch..., i...) -> `shape`, (batch..., v, e...).
Tensors embeddingGrad(EmbeddingGradOp op, Inputs in, const Shape &shape, int64_t offset);
/// parameter, gradient, exp_avg, exp_avg_sq, coefficient, hyper -> parameter, exp_avg, exp_avg_sq.
Tensors adamw(Inputs in);
/// parameter, gradient, coefficient, hyper -> parameter.
Tensors sgd(Inputs in);
/// cache (b, n, k, t, d) or (r, b, n, k, t, d), x (b, s, k, d), slots, positions (b, s) -> the cache. `offset` is the
/// first of the r parts.
Tensors cacheWrite(Inputs in, int64_t offset);
/// q (b, s, k, g, d), keys, values (b, n, k, t, d), slots, positions (b, s), bias, sinks -> o, as q; for r parts: o
/// (r, b, s, k, g, d), lse (b, s, k, g, r).
Tensors cachedAttention(CachedAttentionOp op, Inputs in, int64_t offset);
/// logits (b, m, v), sampling (b, m, 4), seeds (b, m, 3), above (b, m) -> (b, m, v); `offset` is the first
/// class.
Tensors gumbel(GumbelOp op, Inputs in, int64_t offset);
/// logits (b, m, v), sampling (b, m, 4) -> (b, m).
Tensors samplingThreshold(Inputs in);
/// codes, scales -> the value.
Tensors decode(DecodeOp op, Inputs in);
/// value -> codes, and scales of shape `ofScales`.
Tensors encode(EncodeOp op, Inputs in, const Shape &ofScales);
/// value, scale -> codes.
Tensors encode(EncodeScaledOp op, Inputs in);
/// the largest magnitude -> the scale.
Tensors scale(Float8ScaleOp op, Inputs in);
/// addend -> its bytes (pc.encode_addend).
Tensors encodeAddend(EncodeAddendOp op, Inputs in, const EvaluateContext &context);
/// bytes of addends -> their sum.
Tensors decodeSum(DecodeSumOp op, Inputs in, const EvaluateContext &context);
/// Returns an addend as its codes stand for it.
Tensor roundAddend(const Tensor &x, WireAttr wire);
/// Returns, for each element of an addend, the largest possible error of its codes.
Tensor boundOfRounding(const Tensor &x, WireAttr wire);
double activation(ActivationKind kind, double x);
/// The derivative of `activation` at x.
double activationSlope(ActivationKind kind, double x);
} // namespace pc

#endif
