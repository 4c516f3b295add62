//===- Routing.h - Builds the choice of experts and their weights ---------------------===//
// Input: the router's logits, [batch, sequence, experts]. Result: the experts of each token and their weights, as dense
// values of the same shape; later passes use their zeros. Also builds the loss that balances the load of experts.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_ROUTING_H
#define PC_LIB_IMPORT_ROUTING_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"

namespace pc {

/// The choice of experts for each token; values are [batch, sequence, experts].
struct Routing {
  mlir::Value scores;  ///< all of them add up to 1
  mlir::Value chosen;  ///< 1 for chosen experts, otherwise 0
  mlir::Value weights; ///< weights of chosen experts, otherwise 0
  mlir::Value taken;   ///< the choices within the expert's capacity
};

/// An einsum with this `spec`, whose operands are `inputs` and then `chosen`. `chosen` has `k` ones per token, and only
/// the terms of these ones need to be computed.
mlir::Value routedEinsum(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, llvm::StringRef spec,
                         mlir::ValueRange inputs, mlir::Value chosen, int64_t k);

/// Experts accept the first `capacity` tokens of each sequence that have chosen them; 0: all. Other choices are
/// dropped, and the remaining weights of a token do not change.
void limit(mlir::OpBuilder &builder, mlir::Location loc, int64_t capacity, Routing &routing);

/// In layer `layer`, chooses for each token the `k` experts with the largest `logits`. Their weights are their scores,
/// divided by their sum if `normalized`.
Routing route(mlir::OpBuilder &builder, mlir::Location loc, int64_t layer, mlir::Value logits, int64_t k,
              bool normalized);

/// The options of routing by sigmoid scores.
struct GroupRouting {
  int64_t groups, kept, k; ///< the experts of a token are `k` of those in the `kept` best of `groups` groups
  bool normalized;         ///< weights are scores divided by their sum
  double scale;            ///< a factor of weights
};
/// Routes by groups of experts. Experts are chosen by sigmoids of `logits` plus `correction`, [experts], which does not
/// affect weights.
Routing routeByGroups(mlir::OpBuilder &builder, mlir::Location loc, int64_t layer, mlir::Value logits,
                      mlir::Value correction, const GroupRouting &how);

/// The imbalance of the load of experts, over all tokens of a microbatch and all layers together. It is the number of
/// experts times a sum over experts: the mean number of choices times the mean score (W. Fedus et al., "Switch
/// Transformers", 2021).
class LoadBalance {
public:
  void add(mlir::OpBuilder &builder, mlir::Location loc, const Routing &routing);
  /// `factor` times the imbalance, with `k` experts per token.
  mlir::Value loss(mlir::OpBuilder &builder, mlir::Location loc, double factor, int64_t k) const;

private:
  mlir::Value counts, scores; ///< for each expert, sums over tokens and layers so far; null: none yet
};

} // namespace pc

#endif
