//===- RoundOfRows.cpp - Selects the rows of experts of a round ----------------------------===//
// Rows are numbered by expert and then by token. An item counts the rows of earlier experts, and then goes through the
// tokens of its own expert.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// An entry is in the round if its number is in the round's range.
LogicalResult pc::kernels::emit(RoundOfRowsOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  const int64_t experts = type.getShape().back(), tokens = type.getNumElements() / std::max<int64_t>(experts, 1);
  const auto first = static_cast<int64_t>(op.getRound() * op.getLimit()), rounds = static_cast<int64_t>(op.getRounds());
  const bool isLast = static_cast<int64_t>(op.getRound()) + 1 == rounds;
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  kernel.forItems(experts, 1, /*reduces=*/false, [&](Num expert) {
    Ptr x = kernel.operands[0], taken = kernel.results[0];
    Num one = e.integer(1), none = e.integer(0);
    auto isChosen = [&](Num at) { return e.real(0) < x.load(at); };
    auto before = e.loop(e.integer(0), e.integer(tokens), 1, {none}, [&](Num token, const Emitter::Carried &outer) {
      return e.loop(e.integer(0), expert, 1, outer, [&](Num other, const Emitter::Carried &count) {
        return Emitter::Carried{count[0] + e.select(isChosen(token * experts + other), one, none)};
      });
    });
    e.loop(e.integer(0), e.integer(tokens), 1, before, [&](Num token, const Emitter::Carried &number) {
      Num at = token * experts + expert, chosen = x.load(at), zero = e.real(0);
      Num taking = e.select(number[0] < e.integer(first), zero, chosen);
      if (!isLast)
        taking = e.select(number[0] < e.integer(first + static_cast<int64_t>(op.getLimit())), taking, zero);
      taken.store(e.select(isChosen(at), taking, zero), at);
      return Emitter::Carried{number[0] + e.select(isChosen(at), one, none)};
    });
  });
  return success();
}
