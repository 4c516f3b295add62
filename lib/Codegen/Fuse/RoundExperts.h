//===- RoundExperts.h - Rows of experts in rounds ------------------------------------------===//
// Bounds the memory of experts: instead of all rows at once, at most `limit` rows are in memory, at the price of
// computing them once more in the backward pass.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H
#define PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H

#include "pc/IR/PC.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace pc {

/// What is computed in rounds: values of one mask in one block.
struct RowsInRounds {
  llvm::function_ref<bool(mlir::Value)> areRows; ///< values of this mask that are stored by rows
  /// Whether both are the same value after equal moves.
  llvm::function_ref<bool(mlir::Value, mlir::Value)> isSame;
  int64_t limit, rounds;              ///< rows of a round; rounds, at least 2
  llvm::function_ref<bool()> isFirst; ///< whether no stage has told of an error before
};

/// Computes rows of `block` round by round; the readers of the rows add up the results of the rounds. Rows that the
/// backward pass reads are computed again there, round by round, from its other operands if these are the same. Ops
/// that are replaced by others are added to `done`, each after those that it reads. Fails after an error at an op that
/// passes rows to another block.
bool roundExperts(mlir::Block &block, const RowsInRounds &rows, llvm::SmallVectorImpl<mlir::Operation *> &done);

} // namespace pc

#endif
