//===- PlacementGraph.h - The nodes and values on which rows are chosen ----------------------===//
// A graph of the nodes and values of one function. `pc.accumulate` becomes identity nodes: from each operand to its
// block argument, and from each yielded value to its result. Updates and outputs are nodes without results. Every value
// has a name per dim, which comes from the leaves.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_PLACEMENTGRAPH_H
#define PC_SHARD_PLACEMENTGRAPH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/PC.h"
#include <vector>

namespace pc {

enum class NodeKind {
  Leaf,     ///< the tactic chooses its placement
  Compute,  ///< an op with factors
  Move,     ///< a move over an axis that was placed earlier: an identity on this axis
  Argument, ///< operand of accumulate -> its block argument, without the dim of microbatches
  Yield,    ///< yielded value -> result of accumulate
  Update,   ///< has the placement of the leaf whose value it replaces
  Output,   ///< reads its value whole or split, whichever costs less
};

/// Parts of a step for which a tactic may name different dims.
enum class Section { Forward, Backward, Accumulate, Optimizer };

/// A node that gets a row: an op, or an operand or result of an accumulation. `rule` determines which rows are legal.
struct PlacementNode {
  NodeKind kind;
  Section section;
  mlir::Operation *op;                              ///< Argument and Yield: the accumulate or its terminator
  unsigned number = 0;                              ///< number of the block argument (Argument) or the result (Yield)
  FactorRule rule;                                  ///< without factors for Leaf, Update and Output
  llvm::SmallVector<unsigned, 4> operands, results; ///< numbers of values
};

/// A tensor of the program with the facts that tactics need: its names, its readers and how often it is computed.
struct PlacementValue {
  mlir::Value value;
  unsigned producer = 0;              ///< node
  unsigned result = 0;                ///< the number of this result of the producer
  Section section = Section::Forward; ///< section of its producer
  bool rest = true;                   ///< pins apply only to this version, if moves over earlier axes made several
  int64_t times = 1;                  ///< how often a step computes it (microbatches)
  llvm::SmallVector<std::pair<unsigned, unsigned>, 3> readers; ///< (node, operand number), in program order
  llvm::SmallVector<mlir::StringAttr, 4> names;                ///< per dim; null if a dim has no name

  /// The dim called `name`, or -1.
  int64_t find(llvm::StringRef name) const;
  /// Whether this value is an activation of `inner`: its dims are batch, sequence and `inner`, in any order.
  bool isActivation(llvm::StringRef inner) const {
    return names.size() == 3 && find("batch") >= 0 && find("sequence") >= 0 && find(inner) >= 0;
  }
};

/// Nodes and values refer to each other by their indices. The graph is not updated when the program changes.
struct PlacementGraph {
  std::vector<PlacementNode> nodes; ///< in program order, with the body of accumulate at its place
  std::vector<PlacementValue> values;

  /// Reads `function`. Fails with an error at an op that cannot be placed.
  static mlir::FailureOr<PlacementGraph> read(mlir::func::FuncOp function);

private:
  void findRestVersions();
};

/// The dims that a leaf (parameter, state, input or constant) names, or null.
mlir::ArrayAttr leafDims(mlir::Operation *leaf);
/// The name of an op in messages: the name of a leaf, or for example "pc.einsum" with the source name if there is one.
std::string describe(mlir::Operation *op);
/// The scale operand of a norm or of a norm's gradient; null for other ops.
mlir::Value normGamma(mlir::Operation *op);
/// Whether a norm with this scale normalizes over the dim that leaves call `dim`.
bool normalizes(mlir::Value gamma, mlir::StringRef dim);
/// The leaf or computed value that `value` comes from: looks through moves, copies and block arguments of
/// `pc.accumulate`.
mlir::Value origin(mlir::Value value);
/// The value that `value` comes from, like `origin`, looking also through casts and resizes.
mlir::Value source(mlir::Value value);

} // namespace pc

#endif
