//===- RowGraph.h - The nodes of a row kernel and their segments ----------------------------===//
// Ops are expanded into a graph of nodes: loads, arithmetic, reductions along the row (RowProgram.cpp). Nodes are
// divided into segments. Each segment has one loop over the columns. The result of a reduction is available only in
// later segments (RowSegments.cpp). Sums over the rows are available only after the kernel has ended; on a GPU, a
// second kernel adds the blocks' sums from the workspace.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_ROWS_ROWGRAPH_H
#define PC_LIB_CODEGEN_ROWS_ROWGRAPH_H

#include "../Emit/Kernel.h"
#include "../Fuse/RowSpace.h"
#include "pc/IR/BlockCodes.h"
#include <functional>

namespace pc::rowprogram {
using kernels::Num;
using kernels::Ptr;

/// A vector of a row: the row, its first column and its width (0: a scalar, outside of any column loop).
struct Position {
  Num row, column;
  int64_t width = 0;
};

/// Whether a node has one value for all rows, one per row, or one per element.
enum class Space { Scalar, Row, Full };
/// SumExp: the sum of exponentials of args[0], computed together with its maximum args[1] in one pass.
enum class Reduction { None, Sum, Max, SumExp, OverRows };

/// A value of the kernel: one per row, one per element of a row, or only one. `eval` writes the code of the value from
/// the values of `args`.
struct Node {
  Space space;
  llvm::SmallVector<int> args;
  std::function<Num(llvm::ArrayRef<Num>, const Position &)> eval;
  Reduction reduction = Reduction::None;
  int segment =
      0; ///< the column loop that computes it (Full and reductions), or the loop before which it is computed (Row)
  llvm::SmallVector<Ptr> stores; ///< results of the kernel that have this node's value
  int sum = -1;                  ///< number of the sum over rows; -1: none
  int scratch = -1;              ///< number of the scratch row that keeps it for later segments; -1: none
  bool recompute = false;        ///< later segments compute it again, because it is cheap
  mlir::Type loaded;             ///< of a row that is loaded: the type of its elements in memory
  Ptr kept;                      ///< on a GPU, shared memory that keeps a loaded row for later segments; null: none
};

/// One row kernel: expand() adds the nodes of each op, bind() and result() connect them with buffers, and emit() writes
/// the loops. Arguments come before the nodes that use them. `split` divides the dims into row dims and column dims.
class RowProgram {
public:
  RowProgram(Kernel &kernel, RowSpace space)
      : k(kernel), e(kernel.e), shape(space.shape), split(kernel.simt ? space.chooseWide() : space.choose()) {
    for (auto [d, n] : llvm::enumerate(shape))
      (static_cast<int64_t>(d) < split ? rows : columns) *= n;
  }

  /// Adds the nodes that compute an op, and defines its results. Fails after an error at an op that has no row kernel.
  llvm::LogicalResult expand(mlir::Operation *op);
  /// Sets the buffer of an operand or a result.
  void bind(mlir::Value value, Ptr buffer) { buffers[value] = buffer; }
  void result(mlir::Value value, Ptr buffer) {
    Node &n = nodes[node(value)];
    n.stores.push_back(buffer);
    if (n.space == Space::Full)
      rowTypes.push_back(buffer.element);
  }
  /// Writes all loops, and sets the kernel's items and scratch memory.
  void emit();

private:
  using Eval = std::function<Num(llvm::ArrayRef<Num>, const Position &)>;

  /// Adds a node, whose space is the largest of its arguments' spaces. Returns its number.
  int add(llvm::SmallVector<int> args, Eval eval) {
    Node n;
    n.space = Space::Scalar;
    for (int arg : args)
      n.space = std::max(n.space, nodes[arg].space);
    n.args = std::move(args);
    n.eval = std::move(eval);
    nodes.push_back(std::move(n));
    return nodes.size() - 1;
  }
  /// Adds a node with one number per row: the sum, or the maximum, of the row's elements.
  int reduce(Reduction kind, int arg) {
    int n = add({full(arg)}, [](llvm::ArrayRef<Num> x, const Position &) { return x[0]; });
    nodes[n].space = Space::Row;
    nodes[n].reduction = kind;
    return n;
  }
  /// Adds a node with one number per column, which is available after all rows.
  int sumOverRows(int arg) {
    int n = reduce(Reduction::OverRows, arg);
    nodes[n].sum = numSums++;
    return n;
  }
  /// Adds a node that has the value of `arg` for every element.
  int full(int arg) {
    if (nodes[arg].space == Space::Full)
      return arg;
    int n = add({arg}, [](llvm::ArrayRef<Num> x, const Position &) { return x[0]; });
    nodes[n].space = Space::Full;
    return n;
  }
  int binary(char op, int a, int b) {
    return add({a, b}, [op](llvm::ArrayRef<Num> x, const Position &) {
      return Num{x[0].e, kernels::emitBinary(x[0], x[1], op)};
    });
  }
  int times(int a, double c) {
    return add({a}, [c](llvm::ArrayRef<Num> x, const Position &) { return x[0] * c; });
  }
  int constant(double c) {
    return add({}, [this, c](llvm::ArrayRef<Num>, const Position &) { return e.real(c); });
  }

  /// Adds a node that loads `value` under `view`.
  int load(mlir::Value value, View view, int64_t period = 1);
  /// Returns the node of an operand. The operand has the shape of the space or of its rows, or is a scalar.
  int node(mlir::Value value);
  int einsum(EinsumOp op);
  int pickFromMemory(PickOp op);
  int columnIndex(mlir::Value offset); ///< i32 vector of global column numbers

  /// Adds a node that has the value of `n`, rounded to bf16.
  int rounded(int n);
  /// Makes node `n` the value of `result`. If the kernel stores a value in bf16, readers in the kernel also get the
  /// rounded value.
  void define(mlir::Value result, int n);
  llvm::LogicalResult expandPointwise(mlir::Operation *op);
  void expandOp(ConstantOp x);
  void expandOp(EinsumOp x) { define(x.getResult(), einsum(x)); }
  void expandOp(ReduceMaxOp x) { define(x.getResult(), reduce(Reduction::Max, node(x.getX()))); }
  void expandOp(MaxMagnitudeOp x);
  void expandOp(SoftmaxOp x);
  void expandOp(SumExpOp x);
  void expandOp(PickOp x);
  void expandOp(CrossEntropyGradOp x);
  void expandOp(MaskPaddingOp x);
  void expandOp(DropoutOp x);
  void expandOp(LayerNormOp x);
  void expandOp(RMSNormOp x);
  void expandOp(LayerNormGradOp x) { normGradient(x, x.getMean(), x.getGamma()); }
  void expandOp(RMSNormGradOp x) { normGradient(x, {}, x.getGamma()); }
  void expandOp(ClipCoefficientOp x);
  void expandOp(Float8ScaleOp x);
  void normGradient(mlir::Operation *op, mlir::Value mean, mlir::Value gamma);

  /// The functions below write the nodes: they assign nodes to loops, and write the loops.
  void schedule();
  void keepRows();
  bool isReadAgain(int load) const;
  int64_t scratchElements() const { return (numScratch + numSums) * columns; }
  void emitRows();
  void emitSums();
  void emitRow(Num row);
  void addToSum(int sum, Num column, Num value);
  void emitSegment(int segment, Num row);
  Num value(int n, const Position &at, llvm::SmallVectorImpl<Num> &cache, int segment);

  /// Values of nodes in the column loops of this row, by the SSA value of the column's index.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Num>> atColumn;

  Kernel &k;
  kernels::Emitter &e;
  llvm::SmallVector<int64_t> shape;
  int64_t split, rows = 1, columns = 1;
  std::vector<Node> nodes;
  llvm::DenseMap<mlir::Value, int> known;
  llvm::DenseMap<mlir::Value, Ptr> buffers;
  llvm::SmallVector<Num> rowValues; ///< for each node, its value for this row (or for all rows), once computed
  int numScratch = 0, numSums = 0;
  int64_t numDrawn = 0; ///< i32 elements of scratch memory for bits that dropouts draw ahead, after all others
  llvm::SmallVector<mlir::Type> rowTypes; ///< element types of buffers that are read or written row by row
};

} // namespace pc::rowprogram

#endif
