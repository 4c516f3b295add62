//===- Retype.h - Change the type of every tensor of a module -------------------------===//
// Used when all types gain or lose a placement at once, as pc-set-mesh and pc-erase-placements do.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_RETYPE_H
#define PC_LIB_SHARD_RETYPE_H

#include "pc/IR/PC.h"

namespace pc {

/// Replaces the type of every tensor under `root` (results and block arguments) by the type that `map` returns for it.
inline void retype(mlir::Operation *root, llvm::function_ref<mlir::Type(mlir::RankedTensorType)> map) {
  auto change = [&](mlir::Value value) {
    if (auto type = mlir::dyn_cast<mlir::RankedTensorType>(value.getType()))
      value.setType(map(type));
  };
  root->walk([&](mlir::Operation *op) {
    llvm::for_each(op->getResults(), change);
    for (mlir::Region &region : op->getRegions())
      for (mlir::Block &block : region)
        llvm::for_each(block.getArguments(), change);
  });
}

} // namespace pc

#endif
