//===- MoveRows.cpp - Ops of values that are stored by rows -----------------------------===//
// Verifies the ops of values that are stored by rows, with one row per token and chosen expert: their exchange between
// ranks, the limit of tokens per expert, and rounds that limit the rows in memory. The number of rows is known only at
// run time, so types have the largest possible number.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/MoveRows.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCRowsOps.cpp.inc"

/// Operand and result must both be stored by rows of the same mask, one with the tokens split over the axes and the
/// other with the experts.
LogicalResult AllToAllRowsOp::verify() {
  RowsAttr from = rowsOf(getX()), to = rowsOf(getResult());
  auto type = cast<RankedTensorType>(getX().getType()), made = cast<RankedTensorType>(getResult().getType());
  auto mask = cast<RankedTensorType>(getMask().getType());
  Type element = type.getElementType();
  int64_t experts = mask.getRank() - 1, a = getFrom(), b = getTo();
  if (!from || !to || from.getDims() != mask.getRank() || to.getDims() != mask.getRank() ||
      (!element.isF32() && !element.isBF16()) || std::max(a, b) != experts || std::min(a, b) < 0 || a == b)
    return emitOpError() << "operand and result must be f32 or bf16 in the form for routed tokens, with the dims of "
                            "the mask, whose last dim must be "
                         << "the dim of experts and of the move (C1)";
  if (!mask.getElementType().isF32())
    return emitOpError() << "mask must be f32 (C2)";
  for (int64_t d = 0; d <= experts; ++d)
    if (mask.getDimSize(d) != std::max(type.getDimSize(d), made.getDimSize(d)))
      return emitOpError() << "mask " << mask << " must be the mask of the whole group (C2)";
  auto worst = [&](RankedTensorType local) {
    int64_t tokens = 1;
    for (int64_t size : local.getShape().take_front(experts))
      tokens *= size;
    return tokens * std::min<int64_t>(static_cast<int64_t>(getRouted()), local.getDimSize(experts));
  };
  if (static_cast<int64_t>(getRouted()) < 1 || from.getCount() != worst(type) || to.getCount() != worst(made))
    return emitOpError() << "operand and result must have " << worst(type) << " and " << worst(made)
                         << " routed tokens (C3)";
  return success();
}

LogicalResult AdmitOp::verify() {
  if (static_cast<int64_t>(getCapacity()) < 1)
    return emitOpError() << "must have a capacity of at least 1, got " << static_cast<int64_t>(getCapacity())
                         << " (C1)";
  return success();
}

/// A round needs a limit and must be one of its rounds.
LogicalResult RoundOfRowsOp::verify() {
  auto limit = static_cast<int64_t>(getLimit()), round = static_cast<int64_t>(getRound()),
       rounds = static_cast<int64_t>(getRounds());
  if (limit < 1)
    return emitOpError() << "must have a limit of at least 1 row, got " << limit << " (C1)";
  if (round < 0 || round >= rounds)
    return emitOpError() << "is round " << round << " of " << rounds << " (C2)";
  return success();
}
