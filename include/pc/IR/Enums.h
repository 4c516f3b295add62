//===- Enums.h - Enums of the pc dialect ----------------------------------------===//
// Enums generated from the .td files, and the facts of moves. Facts have one home, pcrt/moves.h, because the runtime
// also needs them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_ENUMS_H
#define PC_IR_ENUMS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "pc/IR/PCEnums.h.inc"
#include "pcrt/moves.h"

namespace pc {
/// Every move of the dialect (see `MoveOpInterface`), with the value of its `pcrt_move_kind`.
enum class MoveKind {
#define PC_ROW(Kind, KIND, ...) Kind = PCRT_##KIND,
  PCRT_MOVES(PC_ROW)
#undef PC_ROW
};
/// The facts of a move: what it requires and produces, and how data moves (pcrt/moves.h).
inline const pcrt_move_facts &factsOf(MoveKind kind) { return *pcrt_facts_of_move(static_cast<int32_t>(kind)); }
/// The name of a move as ops, reports and messages spell it: "all_reduce", ...
inline llvm::StringRef moveName(MoveKind kind) { return factsOf(kind).name; }
/// Whether the move sends anything.
inline bool hasTraffic(MoveKind kind) { return factsOf(kind).way != PCRT_WAY_LOCAL; }
/// Whether coordinate 0 of the group sends to all others, or receives from them.
inline bool isRooted(MoveKind kind) { return factsOf(kind).way == PCRT_WAY_ROOTED; }
/// Whether a rank's operand is its block of the dim that is moved. Otherwise the operand has the shape of the whole
/// value.
inline bool takesBlocks(MoveKind kind) { return factsOf(kind).needs == PCRT_STATE_SPLIT; }
inline bool makesBlocks(MoveKind kind) { return factsOf(kind).makes == PCRT_STATE_SPLIT; }
/// The part of a training step that an op belongs to.
enum class StepPhase { Forward, Backward, Optimizer };
llvm::StringRef stepPhaseName(StepPhase phase);
} // namespace pc

#endif
