//===- MoveRows.h - The move of values that are stored by rows, and what limits rows -===//
// Includes the classes of the ops in PCRows.td: the exchange of routed tokens, the limit of tokens per expert, and
// rounds of rows.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_MOVEROWS_H
#define PC_IR_MOVEROWS_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCRowsOps.h.inc"

#endif
