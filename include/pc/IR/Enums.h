//===- Enums.h - Enums of the pc dialect ----------------------------------------===//
#ifndef PC_IR_ENUMS_H
#define PC_IR_ENUMS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "pc/IR/PCEnums.h.inc"

namespace pc {
/// Every move of the dialect (see `MoveOpInterface`). Values agree with `pcrt_move_kind`.
enum class MoveKind {
  AllReduce = 0,
  AllGather,
  ReduceScatter,
  AllToAll,
  Slice,
  Mask,
  Pad,
  Broadcast,
  Scatter,
  Gather,
  Reduce,
  Permute,
  Insert
};
/// The name of a move as ops, reports and messages spell it: "all_reduce", ...
llvm::StringRef moveName(MoveKind kind);
/// Whether the move sends anything.
inline bool hasTraffic(MoveKind kind) {
  return kind <= MoveKind::AllToAll || (kind >= MoveKind::Broadcast && kind <= MoveKind::Permute);
}
/// Whether coordinate 0 of the group sends to, or gets from, all others.
inline bool isRooted(MoveKind kind) { return kind >= MoveKind::Broadcast && kind <= MoveKind::Reduce; }
/// The part of a training step that an op belongs to.
enum class StepPhase { Forward, Backward, Optimizer };
llvm::StringRef stepPhaseName(StepPhase phase);
} // namespace pc

#endif
