//===- FuseMoves.cpp - Chains of equal moves -> one move over several axes -------------===//
// Two moves in a row become one over the concatenation of their axis lists. A dim's list of axes is ordered major to
// minor, and moves add and remove axes only at its minor end. So a second slice adds a more minor axis, and a second
// gather removes a more major one. The joint list is also ordered major to minor.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_FUSEMOVES
#include "pc/Shard/Passes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

/// The axes, major to minor, of one move that has the effect of `first` and then `second`; empty if there is no such
/// move.
static SmallVector<StringAttr> jointAxes(MoveOpInterface first, MoveOpInterface second, MeshAttr mesh) {
  MoveKind kind = first.getMoveKind();
  if (kind != second.getMoveKind() || first.getMoveDim() != second.getMoveDim() ||
      first.getReduction() != second.getReduction() || first.getMoveWire() != second.getMoveWire())
    return {};
  SmallVector<StringAttr> a = first.getMoveAxes(), b = second.getMoveAxes();
  // An all_to_all removes axes from one dim and adds them to the other one in opposite orders.
  bool splits = makesBlocks(kind), gathers = takesBlocks(kind);
  if (isRooted(kind) || (factsOf(kind).flags & PCRT_MOVE_UNPLACED) || (splits && gathers))
    return {};
  if (gathers) { // the axes that `second` removes are major to the axes of `first`
    b.append(a);
    return b;
  }
  a.append(b);
  if (!splits) // no dim: mesh order; otherwise the second list is minor to the first
    llvm::sort(a, [&](StringAttr x, StringAttr y) { return mesh.index(x) < mesh.index(y); });
  return a;
}

namespace {
/// The pass pc-fuse-moves. It goes through the moves in program order and merges a move into the one before it, if that
/// one has no other reader.
struct FuseMoves : pc::impl::FuseMovesBase<FuseMoves> {
  void runOnOperation() override {
    MeshAttr mesh = meshOf(getOperation());
    if (!mesh)
      return;
    SmallVector<Operation *> moves; // in program order, so that a chain grows from its first move on
    getOperation().walk([&](MoveOpInterface move) { moves.push_back(move); });
    for (Operation *op : moves) {
      auto first = op->getOperand(0).getDefiningOp<MoveOpInterface>();
      // If the first move is before pc.accumulate and the second inside, the fused move would be repeated per
      // microbatch.
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
