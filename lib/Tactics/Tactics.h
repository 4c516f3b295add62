//===- Tactics.h - Tactics from which other tactics are composed -------------------------===//
// Each function places one axis (or a grid of axes) of a program that has a mesh, and fails with an error at the op or
// leaf that does not fit. `tactic` is the name that errors begin with.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_TACTICS_TACTICS_H
#define PC_LIB_TACTICS_TACTICS_H

#include "pc/Shard/Seeds.h"

namespace pc {

/// Splits the batch along `axis`; gradients are summed over it.
mlir::LogicalResult placeData(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringAttr axis);

/// Data parallelism with a root: rank 0 of the axis holds data, parameters and optimizer state. It scatters the batch,
/// broadcasts the parameters, gathers the terms of the loss, scatters their gradients, receives the summed gradients of
/// the parameters and updates.
mlir::LogicalResult placeNaiveData(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringAttr axis);

/// Lets the axis of `seeds` also split experts: their weights, which are never sent, and their results. `tokens` is the
/// dim that it splits outside of experts. If `tokens` is empty, it splits the weights of other products instead, and
/// tokens are whole. Fails with errors if there are no experts, or if ranks would have different numbers of them.
mlir::LogicalResult splitExperts(mlir::ModuleOp module, Seeds &seeds, mlir::StringRef tokens);

/// How an axis that is placed later will split along a dim of a parameter.
struct LaterSplit {
  int64_t ranks = 1;         ///< the number of ranks over which it splits this dim of the parameter
  bool ofActivation = false; ///< it splits the dim of the activation that products contract with this one
};
using LaterSplits = llvm::function_ref<LaterSplit(ParameterOp parameter, int64_t dim)>;

/// Places ZeRO of `stage` 1 to 3 along `axis`. `keep` has globs, joined by `|`, on names of parameters that stage 3
/// gathers once per step. With `experts`, the axis also splits experts, whose weights are then never gathered. Fails
/// with errors if no parameter can be split, or if a glob matches none.
mlir::LogicalResult placeZero(
    mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringAttr axis, int64_t stage, bool reshardAfterForward,
    LaterSplits later = [](ParameterOp, int64_t) { return LaterSplit(); }, mlir::StringRef keep = "",
    bool experts = false);

/// Places 2D, 2.5D or 3D tensor parallelism over `axes` (row and col; depth, row and col; i, j and l). With `regather`,
/// the backward pass gathers activations and weights again. Fails with errors if the axes do not fit the form.
mlir::LogicalResult placeGrid(mlir::ModuleOp module, mlir::StringRef form, mlir::ArrayRef<mlir::StringAttr> axes,
                              bool regather);

/// Places `axis` so that the step takes the least time on `machine`, with a price of `bytePrice` seconds per byte of a
/// rank's parameters, gradients and states. Names of dims do not matter.
mlir::LogicalResult placeFree(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringAttr axis,
                              const MachineModel &machine, double bytePrice);

/// The state of a parameter's state on an axis on which the parameter is `ofParameter`: split along the same dim, or
/// whole if it has no such dim.
AxisState likeParameter(StateOp state, ParameterOp parameter, AxisState ofParameter);

/// Whether `parameter` is the f32 master of a rounded copy: only the optimizer reads it, and the passes read the copy.
bool isMaster(ParameterOp parameter);

/// Whether tensor parallelism of `form` (1d, 2d, 2.5d, 3d) splits dim `dim` of a parameter. The axes over which a grid
/// shards parameters as ZeRO does (row of 2d and 2.5d; i of 3d) do not count.
bool takesDim(mlir::StringRef form, ParameterOp parameter, int64_t dim);
bool gridTakesDim(mlir::StringRef form, ParameterOp parameter, int64_t dim); ///< for all forms except 1d

} // namespace pc

#endif
