//===- StageGeneration.h - The stages of a step that generates ----------------------------===//
#ifndef PC_LIB_PIPELINE_STAGEGENERATION_H
#define PC_LIB_PIPELINE_STAGEGENERATION_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc::pipeline {

/// Whether a step generates text. Only such steps have caches.
bool generates(mlir::func::FuncOp step);

/// Replaces `step`, which generates, by the programs of the stages of `axis`. `howToCut` and `memory` are as in
/// cutUnits. Fails after an error, or with the reason in `error`, if the step cannot be cut.
llvm::LogicalResult stageGeneration(mlir::ModuleOp module, mlir::func::FuncOp step, mlir::StringAttr axis,
                                    llvm::StringRef howToCut, const MachineModel &machine, double memory,
                                    std::string &error);

} // namespace pc::pipeline

#endif
