//===- Routing.h - Which experts a token takes a part of, and how much ----------------===//
// Input: the router's logits, [batch, sequence, experts]. Result: which experts a token takes, and with what weight, as
// dense values of the same shape; later passes make use of their zeros. Also the loss that keeps experts evenly loaded.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_ROUTING_H
#define PC_LIB_IMPORT_ROUTING_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"

namespace pc {

/// The choice of experts for each token; values are [batch, sequence, experts].
struct Routing {
  mlir::Value scores;  ///< all of them add up to 1
  mlir::Value chosen;  ///< 1 for those that it takes a part of, else 0
  mlir::Value weights; ///< of those, else 0
  mlir::Value taken;   ///< the choices for which the expert has room
};

/// The einsum `spec` of `inputs` and, after them, of what is `chosen`, of which there are `k` a token: only these
/// terms need be computed.
mlir::Value routedEinsum(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, llvm::StringRef spec,
                         mlir::ValueRange inputs, mlir::Value chosen, int64_t k);

/// Experts take the first `capacity` tokens of each sequence that have chosen them; 0: all. Others have no part of
/// them: the remaining weights of a token stay as they are.
void limit(mlir::OpBuilder &builder, mlir::Location loc, int64_t capacity, Routing &routing);

/// In layer `layer`, the `k` experts of each token whose `logits` are largest. Their weights are their scores, or,
/// `normalized`, these over their sum.
Routing route(mlir::OpBuilder &builder, mlir::Location loc, int64_t layer, mlir::Value logits, int64_t k,
              bool normalized);

/// What chooses experts by their sigmoids.
struct GroupRouting {
  int64_t groups, kept, k; ///< the experts of a token are `k` of those in the `kept` best of `groups` groups
  bool normalized;         ///< weights are scores over their sum
  double scale;            ///< times this
};
/// The same, chosen by sigmoids of `logits` plus `correction`, [experts], which weights have not.
Routing routeByGroups(mlir::OpBuilder &builder, mlir::Location loc, int64_t layer, mlir::Value logits,
                      mlir::Value correction, const GroupRouting &how);

/// How uneven the load of experts is, over all tokens of a microbatch and all layers together: the number of experts
/// times the sum over experts of how many tokens chose it, in the mean, and its score, in the mean
/// (W. Fedus et al., "Switch Transformers", 2021).
class LoadBalance {
public:
  void add(mlir::OpBuilder &builder, mlir::Location loc, const Routing &routing);
  /// `factor` times that, of `k` experts a token.
  mlir::Value loss(mlir::OpBuilder &builder, mlir::Location loc, double factor, int64_t k) const;

private:
  mlir::Value counts, scores; ///< by expert, sums over tokens and layers; null: of none
};

} // namespace pc

#endif
