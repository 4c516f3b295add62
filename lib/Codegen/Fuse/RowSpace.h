//===- RowSpace.h - Ops that work row by row ----------------------------------------------===//
// Elementwise ops, broadcasts, reductions along columns, norms and the loss iterate over rows x columns. On a GPU, so
// do ops that also sum over rows (columnSumsOf): gradients of norms and of biases. Rows are the first `split` dims of
// the op's shape; columns are the others. Ops of one space can be fused into one kernel.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_ROWSPACE_H
#define PC_LIB_CODEGEN_FUSE_ROWSPACE_H

#include "pc/IR/PC.h"
#include "llvm/ADT/bit.h"
#include <optional>

namespace pc {

/// The iteration space of one op or group: its shape, and the positions at which rows may end and columns begin. The
/// positions are a bit set: bit p means that the first p dims are rows.
struct RowSpace {
  llvm::SmallVector<int64_t> shape;
  uint64_t splits = 0;

  bool allows(int64_t split) const { return split >= 0 && split < 64 && (splits >> split & 1); }
  /// Whether the op may work element by element, and thus also on the rows of a larger space.
  bool isPointwise() const { return allows(shape.size()); }
  /// Returns the split for a CPU: the first allowed one with at least 16 rows, so that all threads have work. If there
  /// is none, returns the last allowed one.
  int64_t choose() const;
  /// Returns the split for a GPU, which is the first that is allowed, because threads work on columns.
  int64_t chooseWide() const { return llvm::countr_zero(splits); }
};

/// The space of `op`, or std::nullopt if it is not a row op.
std::optional<RowSpace> rowSpace(mlir::Operation *op);

/// Whether a row of an op on rows x columns needs only the same row of this operand, or one value of it if the operand
/// has no columns. Otherwise, the kernel that computes the operand row by row cannot also compute the op.
bool readsOwnRow(mlir::OpOperand &operand);

/// How a tensor is addressed by row and column.
enum class View { Full, Row, Column, Scalar, Periodic, None };

/// The view of an einsum's operand, given the dims of the space that the operand has. `period` is the number of rows
/// after which a Periodic operand repeats.
View viewOf(llvm::ArrayRef<int> operandDims, llvm::ArrayRef<int> spaceDims, llvm::ArrayRef<int64_t> spaceShape,
            int64_t split, int64_t &period);

} // namespace pc

#endif
