//===- Generation.h - Ops of programs that generate text -------------------------------------===//
// Includes the classes of the ops in PCGeneration.td.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_GENERATION_H
#define PC_IR_GENERATION_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.h.inc"

namespace pc {
/// Whether a step changes parameters or states of an optimizer. One that generates text changes only caches.
bool trains(mlir::ModuleOp module);
} // namespace pc

#endif
