//===- KnownDims.h - Whether tactics know the names of a model's dims ---------------------===//
// The forms 1d to 3d of tensor parallelism find dims by the names that the importer gives. With these functions, the
// search finds out which tactics are useful for a model.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_KNOWNDIMS_H
#define PC_SHARD_KNOWNDIMS_H

#include "mlir/IR/BuiltinOps.h"

namespace pc {

/// Whether a parameter of `module` has a dim that tensor parallelism splits by its name.
bool hasKnownDims(mlir::ModuleOp module);
/// Whether the model has a mixture of experts, so that `pc-expert-parallel` has something to split.
bool hasExperts(mlir::ModuleOp module);

} // namespace pc

#endif
