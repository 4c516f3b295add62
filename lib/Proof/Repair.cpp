//===- Repair.cpp - Finds the wrong move of a window ------------------------------------------===//
// The values of a window's steps are new in its phase. So if two of them contradict each other, it is not known which
// one is wrong. Therefore each move near the failure is tried with the attributes of similar moves. If the program is
// proved with one of these changes, that move was wrong.
//===-----------------------------------------------------------------------------===//
#include "Trace.h"

#include "pc/IR/PC.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// The moves that contribute to a failure, nearest first.
static SmallVector<Operation *> movesTo(const Failure &failure, const Trace &trace, size_t most) {
  llvm::SmallSetVector<Operation *, 32> moves;
  SmallVector<int> todo(failure.from);
  llvm::DenseSet<int> seen;
  if (isa<MoveOpInterface>(failure.op))
    moves.insert(failure.op);
  for (size_t i = 0; i < todo.size() && moves.size() < most; ++i) {
    if (todo[i] < 0 || !seen.insert(todo[i]).second)
      continue;
    const Trace::Made &made = trace.made[todo[i]];
    if (isa<MoveOpInterface>(made.op))
      moves.insert(made.op);
    llvm::append_range(todo, made.from);
  }
  return moves.takeVector();
}

/// Returns true if a move is one of a window's steps.
static bool isStep(Operation *op) {
  auto move = cast<MoveOpInterface>(op);
  return isa<PermuteOp, InsertOp>(op) || move.getMoveShift() || !move.getMoveWith().empty();
}

/// Ops with the same name and types as `op` but other attributes, one for each set of attributes.
static SmallVector<Operation *> othersLike(ModuleOp module, Operation *op) {
  auto shapes = [](Operation *one) {
    SmallVector<Type> types;
    for (Type type : llvm::concat<const Type>(one->getOperandTypes(), one->getResultTypes()))
      types.push_back(withEncoding(type, {}));
    return types;
  };
  auto areSame = [](Operation *a, Operation *b) {
    return a->getName().compareOpProperties(a->getPropertiesStorage(), b->getPropertiesStorage());
  };
  SmallVector<Type> own = shapes(op);
  SmallVector<Operation *> others;
  module.walk([&](Operation *other) {
    if (other->getName() == op->getName() && !areSame(other, op) && shapes(other) == own &&
        llvm::none_of(others, [&](Operation *known) { return areSame(known, other); }))
      others.push_back(other);
  });
  return others;
}

/// Gives up if the walks for all candidates would visit too many ops. Each changed move is restored before the next one
/// is tried.
std::optional<Repair> pc::proof::repair(ModuleOp module, const Failure &failure, const Trace &trace,
                                        llvm::function_ref<bool()> isProved) {
  SmallVector<Operation *> moves = movesTo(failure, trace, /*most=*/24);
  if (llvm::none_of(moves, isStep))
    return std::nullopt;
  constexpr int64_t mostOps = 1 << 19; // the most ops in all walks
  int64_t ops = 0, walked = 0;
  module.walk([&](Operation *) { ++ops; });
  for (Operation *move : moves) {
    OwningOpRef<Operation *> own = move->clone();
    for (Operation *other : othersLike(module, move)) {
      walked += ops;
      if (walked > mostOps)
        return std::nullopt;
      move->copyProperties(other->getPropertiesStorage());
      bool proved = isProved();
      move->copyProperties((*own)->getPropertiesStorage());
      if (proved)
        return Repair{move, other};
    }
  }
  return std::nullopt;
}
