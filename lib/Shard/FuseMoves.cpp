//===- FuseMoves.cpp - Chains of equal moves -> one move over several axes -------------===//
// Two moves in a row become one over the concatenation of their axis lists. Which of the two comes first in the joint
// list follows from the order of a dim's axes (major to minor) and from moves taking from and adding to the minor end
// only.
//===-----------------------------------------------------------------------------===//
#include "pc/Shard/Passes.h"

#include "mlir/IR/Builders.h"

namespace pc {
#define GEN_PASS_DEF_FUSEMOVES
#include "pc/Shard/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

/// The axes of one move that does what `first` and then `second` do, major to minor; empty if there is none.
static SmallVector<StringAttr> jointAxes(MoveOpInterface first, MoveOpInterface second, MeshAttr mesh) {
  MoveKind kind = first.getMoveKind();
  if (kind != second.getMoveKind() || first.getMoveDim() != second.getMoveDim() ||
      first.getReduction() != second.getReduction())
    return {};
  SmallVector<StringAttr> a = first.getMoveAxes(), b = second.getMoveAxes();
  switch (kind) {
  case MoveKind::AllReduce:
  case MoveKind::Mask: // no dim: the order of the mesh
    a.append(b);
    llvm::sort(a, [&](StringAttr x, StringAttr y) { return mesh.index(x) < mesh.index(y); });
    return a;
  case MoveKind::ReduceScatter:
  case MoveKind::Slice: // the second list is added behind (minor to) the first
    a.append(b);
    return a;
  case MoveKind::AllGather:
  case MoveKind::Pad: // what leaves last was the more major
    b.append(a);
    return b;
  case MoveKind::AllToAll: // leaves one dim in the reverse of the order in which it joins the other
  case MoveKind::Broadcast:
  case MoveKind::Scatter:
  case MoveKind::Gather:
  case MoveKind::Reduce:
  case MoveKind::Permute:
  case MoveKind::Insert:
    return {};
  }
  return {};
}

namespace {
struct FuseMoves : pc::impl::FuseMovesBase<FuseMoves> {
  void runOnOperation() override {
    MeshAttr mesh = meshOf(getOperation());
    if (!mesh)
      return;
    SmallVector<Operation *> moves; // in program order, so that a chain grows from its first move on
    getOperation().walk([&](MoveOpInterface move) { moves.push_back(move); });
    for (Operation *op : moves) {
      auto first = op->getOperand(0).getDefiningOp<MoveOpInterface>();
      // Moving the first into the body of a loop would repeat it there.
      if (!first || !first->hasOneUse() || first->getBlock() != op->getBlock())
        continue;
      SmallVector<StringAttr> axes = jointAxes(first, cast<MoveOpInterface>(op), mesh);
      if (axes.empty())
        continue;
      SmallVector<Attribute> list(axes.begin(), axes.end());
      op->setAttr("axes", ArrayAttr::get(&getContext(), list));
      op->setOperand(0, first->getOperand(0));
      first->erase();
    }
  }
};
} // namespace
