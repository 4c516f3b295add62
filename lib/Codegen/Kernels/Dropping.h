//===- Dropping.h - Selects the elements that a kernel drops -------------------------===//
// This implements `#pc.drop` in kernels. Random bits are integers, so CPUs and GPUs drop the same elements. Eight
// neighbours in a row share a block of Philox4x32-10. A thread that has all eight computes the block once. A CPU draws
// the bits of a whole row in advance. One vector computation draws 8 blocks, which have the bits of 64 elements, while
// a vector of the row needs only two blocks.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_DROPPING_H
#define PC_LIB_CODEGEN_KERNELS_DROPPING_H

#include "../Emit/Emit.h"
#include "pc/IR/PC.h"

namespace pc::kernels {

/// The dropout of one op in one kernel. The constructor emits the loads of seed, step and offsets. The other functions
/// emit code per row or vector, and change no state.
class Dropping {
public:
  /// Emits the code that all elements share. Must be called outside of loops. `random` and `offsets` are the buffers of
  /// the op's operands.
  Dropping(Emitter &e, DrawnOpInterface op, Ptr random, llvm::ArrayRef<Ptr> offsets);

  /// Returns the value by which `apply` identifies a row. It is computed from the local indices (i64) of all dims
  /// except the last, or from the number of the row (i64).
  Num row(llvm::ArrayRef<Num> index) const;
  Num row(Num number) const;
  /// Returns x with dropped elements set to 0 and the others divided by 1 - p. Element i of x is in local column
  /// `column` + steps[i]; a scalar has one element. Vectors begin at multiples of their width, and on a CPU at
  /// multiples of its lanes.
  Num apply(Num x, Num row, Num column, llvm::ArrayRef<int32_t> steps) const;

  /// On a CPU, returns the number of i32 elements of memory for the bits of a row of `columns` elements. Returns 0 if
  /// the bits cannot be drawn in advance, because blocks are cut.
  int64_t wordsAhead(int64_t columns) const;
  /// Draws the bits of columns [from, to) of `row` into `ahead`, which has wordsAhead words of i32. Does nothing if
  /// `ahead` is null.
  void drawAhead(Num row, Num from, Num to, Ptr ahead) const;
  /// Like `apply` above, with the bits in `ahead`, or with new bits if `ahead` is null. `column` is even.
  Num apply(Num x, Num row, Ptr ahead, Num column, llvm::ArrayRef<int32_t> steps) const;

  /// Applies the drop to scalars of neighbouring columns, from `column` on, in place.
  void apply(llvm::MutableArrayRef<Num> x, Num row, Num column) const;

private:
  /// The bits of one block, which is for eight elements.
  struct Bits {
    mlir::Value low, high; ///< i64: elements 0 to 3 of a block, 16 bits each, and elements 4 to 7
  };
  /// Draws the bits of the blocks with numbers `block`: i64, or a vector of i64.
  Bits draw(mlir::Value block) const;
  /// Returns 16 random bits for each element, as i32.
  Num numbers(Num row, Num column, llvm::ArrayRef<int32_t> steps) const;
  Num eachAlone(Num row, Num column, llvm::ArrayRef<int32_t> steps) const;
  Num byBlock(Num row, Num column, llvm::ArrayRef<int32_t> steps, int64_t unit) const;
  /// Returns the bits of whole blocks, in the order of their elements, as a vector of i64.
  mlir::Value drawInOrder(llvm::ArrayRef<mlir::Value> blocks) const;
  Num keep(Num x, Num bits) const;
  /// Whether a vector may begin or end within a block.
  bool isCut() const;
  /// Returns the global index of local index `at` along dim d.
  Num place(int64_t d, Num at) const;
  bool isInZigzag(int64_t d) const { return ranks && llvm::is_contained(sequences, d); }

  Emitter &e;
  DropAttr drop;
  llvm::SmallVector<int64_t> sizes, local, sequences;
  llvm::SmallVector<Num> starts; ///< by dim; null: 0
  const int64_t ranks;           ///< ranks of the zigzag order, or 0
  Num key[2], step, number;      ///< i64: the words of the key, the last two of the counter
};

} // namespace pc::kernels
#endif
