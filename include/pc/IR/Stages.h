//===- Stages.h - The programs of a module ------------------------------------------------===//
// The module of a pipeline has a nested module with a program for each stage ("pc.stage"), and names the mesh axis of
// stages ("pc.stage_axis"). Any other module is one program for all ranks.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_STAGES_H
#define PC_IR_STAGES_H

#include "pc/IR/PC.h"

namespace pc {

/// The modules that hold a program: the stages of `module` in their order, or `module` itself.
llvm::SmallVector<mlir::ModuleOp> programsOf(mlir::ModuleOp module);
/// The axis of stages; null if there are no stages. `module` is the module of a pipeline or of one of its stages.
mlir::StringAttr stageAxisOf(mlir::ModuleOp module);
/// The stage's coordinate on that axis; 0 without stages.
int64_t stageOf(mlir::ModuleOp program);
/// Whether a move is over the axis of stages. False if there is no such axis.
bool isOverStages(MoveOpInterface move, mlir::StringAttr axis);

} // namespace pc

#endif
