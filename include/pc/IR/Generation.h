//===- Generation.h - Ops of programs that generate text -------------------------------------===//
// Includes the classes of the ops in PCGeneration.td, and names what a generating program has besides them: its caches,
// its inputs and its outputs.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_GENERATION_H
#define PC_IR_GENERATION_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.h.inc"

#endif
