//===- Stages.cpp - The programs of a module ----------------------------------------------===//
// A module without pipeline is one program; a staged module has a module per stage, with its number in `pc.stage`.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;

/// Without nested modules the module itself is the only program.
SmallVector<ModuleOp> pc::programsOf(ModuleOp module) {
  auto stages = llvm::to_vector(module.getOps<ModuleOp>());
  if (stages.empty())
    return {module};
  llvm::sort(stages, [](ModuleOp a, ModuleOp b) { return stageOf(a) < stageOf(b); });
  return stages;
}

StringAttr pc::stageAxisOf(ModuleOp module) {
  if (auto parent = dyn_cast_or_null<ModuleOp>(module->getParentOp()))
    module = parent;
  return module->getAttrOfType<StringAttr>("pc.stage_axis");
}

int64_t pc::stageOf(ModuleOp program) {
  auto stage = program->getAttrOfType<IntegerAttr>("pc.stage");
  return stage ? stage.getInt() : 0;
}

bool pc::isOverStages(MoveOpInterface move, StringAttr axis) {
  return axis && llvm::is_contained(move.getMoveAxes(), axis);
}
