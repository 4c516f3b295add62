//===- OrderUpdates.cpp - The order of updates whose leaves are carried -------------------===//
// Moves ops to the end of the block, each after the ops whose results it reads.
//===-----------------------------------------------------------------------------===//
#include "OrderUpdates.h"

#include "pc/IR/Liveness.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace pc;

namespace {

/// Moves ops to the end of their block.
class Placer {
public:
  /// Adds an op that has to move.
  void add(Operation *op) { position.try_emplace(op, position.size()); }

  /// Moves `root` after the ops whose results it needs. These ops keep their order.
  void place(Operation *root) {
    SmallVector<Operation *> needed;
    auto take = [&](Operation *op) {
      if (position.contains(op) && placed.insert(op).second)
        needed.push_back(op);
    };
    take(root);
    for (size_t i = 0; i < needed.size(); ++i)
      for (Value operand : needed[i]->getOperands())
        take(operand.getDefiningOp());
    llvm::sort(needed, [&](Operation *a, Operation *b) { return position.lookup(a) < position.lookup(b); });
    for (Operation *op : needed)
      op->moveBefore(op->getBlock()->getTerminator());
  }

private:
  llvm::DenseMap<Operation *, size_t> position; ///< the old order
  llvm::DenseSet<Operation *> placed;
};

} // namespace

void pc::orderUpdates(Operation *begin, llvm::function_ref<bool(Operation *)> isFixed) {
  Placer placer;
  SmallVector<Operation *> fixed;
  SmallVector<UpdateOp> updates;
  llvm::DenseMap<StringAttr, int64_t> sizes; // by parameter: bytes of its largest leaf
  auto sizeOf = [&](UpdateOp update) -> int64_t & {
    return sizes[update.getParameter() ? update.getParameterAttr() : update.getNameAttr()];
  };
  for (Operation *op = begin->getNextNode(); op != begin->getBlock()->getTerminator(); op = op->getNextNode()) {
    placer.add(op);
    if (auto update = dyn_cast<UpdateOp>(op)) {
      updates.push_back(update);
      sizeOf(update) = std::max(sizeOf(update), byteSize(update.getValue().getType()));
    } else if (op->use_empty() || !isMemoryEffectFree(op) || isFixed(op)) {
      fixed.push_back(op);
    }
  }
  llvm::stable_sort(updates, [&](UpdateOp a, UpdateOp b) { return sizeOf(a) < sizeOf(b); });
  for (Operation *op : fixed)
    placer.place(op);
  for (UpdateOp update : updates)
    placer.place(update);
}
