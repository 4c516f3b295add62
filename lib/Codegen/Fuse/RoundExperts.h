//===- RoundExperts.h - Rows of experts in rounds ------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H
#define PC_LIB_CODEGEN_FUSE_ROUNDEXPERTS_H

#include "pc/IR/PC.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace pc {

/// What is computed in rounds: values of one mask in one block.
struct RowsInRounds {
  llvm::function_ref<bool(mlir::Value)> areRows; ///< values of this mask that are stored by rows
  /// Whether values are the same one, moved alike.
  llvm::function_ref<bool(mlir::Value, mlir::Value)> isSame;
  int64_t limit, rounds;              ///< rows of a round; rounds, at least 2
  llvm::function_ref<bool()> isFirst; ///< whether no stage has told of an error before
};

/// Computes rows of `block` round by round: what reads them adds up what the rounds make. Rows that the backward pass
/// reads are computed again there, round by round, from what it reads else where that is the same. Ops in the place of
/// which there are others then are added to `done`, each after those that it reads. False after an error at an op that
/// hands rows to another block.
bool roundExperts(mlir::Block &block, const RowsInRounds &rows, llvm::SmallVectorImpl<mlir::Operation *> &done);

} // namespace pc

#endif
