//===- KnownDims.h - Whether tactics that go by names know a model ------------------------===//
// Tensor parallelism of the forms 1d to 3d goes by the names of dims that the importer gives. The search asks here
// which tactics make sense for a model.
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
