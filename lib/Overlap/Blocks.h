//===- Blocks.h - Decides which values of collective matmul exist as blocks -------------===//
// Declares the decisions of the rewrite in WindowProducts.cpp: which gathered values, and which values computed from
// them, exist as blocks, and how ops work on these blocks. Blocks.cpp lists the invariants.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_BLOCKS_H
#define PC_LIB_OVERLAP_BLOCKS_H

#include "Windows.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace pc {

/// The order in which n blocks are processed. In a ring, `with` is null. On coordinate i of `axes`, step t then works
/// on the block of coordinate (i - t) mod n. If moves over two axes belong to one product, `with` is the minor axis. On
/// coordinates (i, j), step t then works on the block of coordinate k with i + j + k = t mod n, for the moves over
/// either axis. In this case blocks are sent directly from their owners, because rings would need the initial skew of
/// Cannon's algorithm, which sends more.
struct Window {
  mlir::ArrayAttr axes, with;
  int64_t n = 0;
  bool operator==(const Window &other) const { return axes == other.axes && with == other.with; }

  /// Returns the one of `axes` and `with` that is not `own`.
  mlir::ArrayAttr other(mlir::ArrayAttr own) const { return own == axes ? with : axes; }
};

/// A value that exists as blocks along `dim`.
struct Blocked {
  Window window;
  int64_t dim = 0;
};

/// Says how an op is computed block by block. The row states which operands and results are blocked, and along which
/// dim.
struct BlockStep {
  Window window;
  Row row;

  /// Whether the op reads this operand block by block.
  bool reads(unsigned operand, const Blocked &blocked) const {
    return window == blocked.window && row.operands[operand] == AxisState::split(blocked.dim);
  }
};

/// Whether `op` is a matrix product, and not a sum or a permutation of dims.
bool isProduct(mlir::Operation *op);

/// The decisions for a block: which values are blocked, and how ops work on them.
class BlockDecisions {
public:
  BlockDecisions(mlir::Block &block, MeshAttr mesh, llvm::ArrayRef<std::string> axes, Origins &origins);

  /// Returns null if the value is not blocked.
  const Blocked *blocked(mlir::Value value) const {
    auto it = values.find(value);
    return it == values.end() ? nullptr : &it->second;
  }
  /// Returns null if the op works on whole values.
  const BlockStep *step(mlir::Operation *op) const {
    auto it = steps.find(op);
    return it == steps.end() ? nullptr : &it->second;
  }
  /// Returns null if the scatter stays a single move.
  const Window *window(ReduceScatterOp scatter) const {
    auto it = scatters.find(scatter);
    return it == scatters.end() ? nullptr : &it->second;
  }

  /// Calls `stays` for each gather that feeds a product, and each reduce_scatter of a product, that is not rewritten.
  void forStaying(llvm::function_ref<void(StayingMove)> stays) const;

private:
  bool isWindow(MoveOpInterface move) const;

  /// Makes one round of decisions. Returns false if `met` changed, so that another round is needed.
  bool decideAll();

  /// Returns the window of a move over `axes`: exchanges over two axes if a product also has a move over another axis,
  /// and otherwise a ring.
  Window windowOf(mlir::Operation *move, mlir::ArrayAttr axes) const;
  Window pair(mlir::ArrayAttr a, mlir::ArrayAttr b, int64_t n) const;

  /// Decides ops in program order, starting at gathers. At an op that needs the whole result of a gather, returns to
  /// the gather and discards all later decisions.
  void followGathers();

  /// Returns a blocked gather that `op`, or an op in its region, does not read block by block, and the op that reads
  /// it.
  std::pair<AllGatherOp, mlir::Operation *> neededWhole(mlir::Operation *op) const;

  /// Discards the decisions for these ops.
  void forget(mlir::Block::iterator begin, mlir::Block::iterator end);

  /// Makes `op` a step if it can work on the blocks that it reads. Returns true if `op` combines moves that were not
  /// recorded in `met` before.
  bool decide(mlir::Operation *op);

  /// Returns the window that fits moves with both orders, if there is one and the orders differ.
  std::optional<Window> common(const Window &a, const Window &b) const;

  /// The blocks of `value` come from gathers that share a product with a move over the other axis of `window`. Records
  /// this in `met`. A gather keeps its first record.
  void take(mlir::Value value, const Window &window);
  void take(mlir::Operation *move, mlir::ArrayAttr axes, const Window &window) {
    again |= met.try_emplace(move, window.other(axes)).second;
  }

  /// Decides ops from a reduce_scatter backwards, up to the products whose results it sums.
  void followScatter(ReduceScatterOp scatter);

  /// Whether `value` can be computed block by block as `wanted`. Adds the ops that are needed to `made`, and writes to
  /// `found` whether one of them is a product.
  bool follow(mlir::Value value, const Blocked &wanted,
              llvm::SmallVectorImpl<std::pair<mlir::Operation *, BlockStep>> &made, bool &found);

  bool isMadeByProduct(mlir::Value value) const;

  mlir::Block &block;
  MeshAttr mesh;
  llvm::ArrayRef<std::string> axes;
  Origins &origins;
  bool again = false;
  llvm::DenseMap<mlir::Value, Blocked> values;
  llvm::DenseMap<mlir::Operation *, BlockStep> steps;
  llvm::DenseMap<mlir::Operation *, Window> scatters;
  /// For each move, the axes of the moves with which it shares a product.
  llvm::DenseMap<mlir::Operation *, mlir::ArrayAttr> met;
  /// Gathers that stay, and the op that needs the whole value, if any.
  llvm::MapVector<mlir::Operation *, mlir::Operation *> whole;
};

} // namespace pc

#endif
