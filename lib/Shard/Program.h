//===- Program.h - A training step as propagation sees it --------------------------------===//
// Nodes and values of one function: accumulate becomes identity nodes from its operands to block arguments and from
// yielded values to results; updates and outputs are nodes without results. Every value has a name per dim.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_PROGRAM_H
#define PC_LIB_SHARD_PROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/PC.h"
#include <vector>

namespace pc {

enum class NodeKind {
  Leaf,     ///< its placement is the tactic's choice
  Compute,  ///< an op with factors
  Move,     ///< of an earlier axis: an identity
  Argument, ///< operand of accumulate -> its block argument, less the dim of microbatches
  Yield,    ///< yielded value -> result of accumulate
  Update,   ///< lies as its leaf does
  Output,   ///< whole or split, as the value is anyway
};

/// Parts of a step for which a tactic may name other dims.
enum class Section { Forward, Backward, Accumulate, Optimizer };

struct Node {
  NodeKind kind;
  Section section;
  mlir::Operation *op;                              ///< Argument and Yield: the accumulate or its terminator
  unsigned number = 0;                              ///< Argument: of the block argument; Yield: of the result
  FactorRule rule;                                  ///< without factors for Leaf, Update and Output
  llvm::SmallVector<unsigned, 4> operands, results; ///< values
};

struct ProgramValue {
  mlir::Value value;
  unsigned producer = 0;              ///< node
  unsigned result = 0;                ///< which of the producer's results
  Section section = Section::Forward; ///< of its producer
  bool rest = true;  ///< of the versions that moves of earlier axes made of one value, the one that pins speak of
  int64_t times = 1; ///< how often a step computes it
  llvm::SmallVector<std::pair<unsigned, unsigned>, 3> readers; ///< (node, operand number), in program order
  llvm::SmallVector<mlir::StringAttr, 4> names;                ///< per dim; null where nothing names it

  /// The dim called `name`, or -1.
  int64_t find(llvm::StringRef name) const;
  /// Whether this is an activation of `inner`: its dims are batch, sequence and `inner`, in any order.
  bool isActivation(llvm::StringRef inner) const {
    return names.size() == 3 && find("batch") >= 0 && find("sequence") >= 0 && find(inner) >= 0;
  }
};

struct Program {
  std::vector<Node> nodes; ///< in program order, the body of accumulate in its place
  std::vector<ProgramValue> values;

  /// The program in `function`. Fails with an error at an op that cannot be placed.
  static mlir::FailureOr<Program> read(mlir::func::FuncOp function);

private:
  void findRestVersions();
};

/// Parameters, states, inputs and constants: the dims that a leaf names itself, or null.
mlir::ArrayAttr leafDims(mlir::Operation *leaf);
/// What a message calls an op: the name of a leaf, else "pc.einsum" with the source name where there is one.
std::string describe(mlir::Operation *op);
/// The scale of a norm or of its gradient; null for other ops.
mlir::Value normGamma(mlir::Operation *op);
/// Whether a norm with this scale works on the dim that leaves call `dim`.
bool normalizes(mlir::Value gamma, mlir::StringRef dim);
/// The leaf or computed value of which `value` is a moved, copied or per-microbatch version.
mlir::Value origin(mlir::Value value);
/// The same, through casts and resizes too: what a value is rounded or cut from.
mlir::Value source(mlir::Value value);

} // namespace pc

#endif
