//===- Stages.h - The programs of a module ------------------------------------------------===//
// A module of a pipeline holds a nested module for each stage ("pc.stage"), each with a program of its own, and names
// the mesh axis of stages ("pc.stage_axis"). Any other module is one program, for all ranks.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_STAGES_H
#define PC_IR_STAGES_H

#include "pc/IR/PC.h"

namespace pc {

/// The modules that hold a program: the stages of `module` in their order, or `module` itself.
llvm::SmallVector<mlir::ModuleOp> programsOf(mlir::ModuleOp module);
/// The axis of stages, of the module of a pipeline or of one of its stages; null: there are no stages.
mlir::StringAttr stageAxisOf(mlir::ModuleOp module);
/// The coordinate on that axis, of the module of a stage; 0 without stages.
int64_t stageOf(mlir::ModuleOp program);
/// Whether a move is over the axis of stages; never where there is none.
bool isOverStages(MoveOpInterface move, mlir::StringAttr axis);

} // namespace pc

#endif
