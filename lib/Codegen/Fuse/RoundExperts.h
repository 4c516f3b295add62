//===- RoundExperts.h - Rows of experts in rounds ------------------------------------------===//
// Bounds the memory of experts: instead of all rows, at most `limit` rows are in memory at once. In return, the
// backward pass computes the rows again.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H
#define PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H

#include "pc/IR/PC.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace pc {

/// The values that are computed in rounds. All have the same mask and are in the same block.
struct RowsInRounds {
  llvm::function_ref<bool(mlir::Value)> areRows; ///< values of this mask that are stored by rows
  /// Whether two values are equal, possibly after equal moves.
  llvm::function_ref<bool(mlir::Value, mlir::Value)> isSame;
  int64_t limit, rounds;              ///< rows of a round; rounds, at least 2
  llvm::function_ref<bool()> isFirst; ///< whether no stage has reported an error yet
};

/// Computes rows of `block` round by round. The readers of the rows add up the results of the rounds. Rows that the
/// backward pass reads are computed there again, round by round. If the backward pass has its own versions of the
/// operands and these are equal, they are used. Replaced ops are added to `done`, each after the ops that it reads.
/// Fails after an error at an op that passes rows to another block.
bool roundExperts(mlir::Block &block, const RowsInRounds &rows, llvm::SmallVectorImpl<mlir::Operation *> &done);

} // namespace pc

#endif
