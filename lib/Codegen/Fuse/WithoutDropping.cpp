//===- WithoutDropping.cpp - Versions of ops that do not drop elements ---------------------===//
// An evaluation runs the calls of a training step, but replaces calls that drop elements by copies that keep all
// elements. Attention loses its random operands; a dropout becomes a product by 1.
//===-----------------------------------------------------------------------------===//
#include "WithoutDropping.h"

using namespace mlir;
using namespace pc;

/// A fusion drops if one of its ops does.
bool pc::drops(Operation *op) {
  auto drawn = dyn_cast<DrawnOpInterface>(op);
  if (drawn && drawn.getDropAttr())
    return true;
  auto fusion = dyn_cast<FusionOp>(op);
  return fusion && llvm::any_of(fusion.getBody().front(), [](Operation &inner) { return drops(&inner); });
}

/// Replaces a dropout by a multiplication by 1, which is exact.
static ScaleOp keepAll(OpBuilder &b, DropoutOp dropout) {
  return ScaleOp::create(b, dropout.getLoc(), dropout.getResult().getType(), dropout.getX(), b.getF64FloatAttr(1));
}

/// A dropout becomes the op that keeps everything; attention and fusions lose their drops.
OwningOpRef<Operation *> pc::withoutDropping(Operation *op) {
  if (auto dropout = dyn_cast<DropoutOp>(op)) {
    OpBuilder b(op->getContext());
    return keepAll(b, dropout).getOperation();
  }
  OwningOpRef<Operation *> copy = op->clone();
  copy.get()->walk([](Operation *inner) {
    if (auto attention = dyn_cast<AttentionOp>(inner)) {
      attention.removeDropAttr();
      attention.getRandomMutable().clear();
      attention.getOffsetsMutable().clear();
    } else if (auto dropout = dyn_cast<DropoutOp>(inner)) {
      OpBuilder b(dropout);
      dropout.getResult().replaceAllUsesWith(keepAll(b, dropout).getResult());
      dropout.erase();
    }
  });
  return copy;
}
