//===- Admit.cpp - Selects the choices of a sequence that experts accept ------------------===//
// An item counts the choices of one expert in one sequence, position by position. Choices of neighbouring experts are
// adjacent in memory.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// A choice is accepted if fewer than `capacity` choices of the same expert come before it in the sequence.
LogicalResult pc::kernels::emit(AdmitOp op, Kernel &kernel) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getX().getType()).getShape();
  const int64_t length = shape[1], experts = shape[2], ranks = zigzagRanks(op);
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  kernel.forItems(shape[0] * experts, 1, /*reduces=*/false, [&](Num item) {
    Num sequence = item / experts, first = sequence * (length * experts) + (item - sequence * experts);
    Ptr x = kernel.operands[0] + first, taken = kernel.results[0] + first;
    // In the zigzag order of n ranks, chunk c of positions is stored as chunk 2c, or as chunk 4n - 1 - 2c if it is one
    // of the last n.
    auto placeOf = [&](Num position) {
      if (!ranks)
        return position;
      const int64_t size = length / (2 * ranks);
      Num chunk = position / size, twice = chunk * 2;
      Num place = e.select(chunk < e.integer(ranks), twice, e.integer(4 * ranks - 1) - twice);
      return place * size + (position - chunk * size);
    };
    e.loop(e.integer(0), e.integer(length), 1, {e.real(0)}, [&](Num position, const Emitter::Carried &count) {
      Num at = placeOf(position) * experts, chosen = x.load(at);
      Num isChosen = e.real(0) < chosen, none = e.real(0);
      Num isFree = e.select(count[0] < e.real(static_cast<double>(op.getCapacity())), chosen, none);
      taken.store(e.select(isChosen, isFree, none), at);
      return Emitter::Carried{count[0] + e.select(isChosen, e.real(1), none)};
    });
  });
  return success();
}
