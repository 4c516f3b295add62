//===- WindowMoves.cpp - Ring attention and collective matmuls -------------------------------===//
// Runs the two rewrites of Windows.h (attention over a ring, products with their gather or reduce_scatter) on every
// function. Emits remarks that say which moves stay whole and why. Fails if there is no move to window over an axis of
// the option.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_WINDOWMOVES
#include "pc/Overlap/Passes.h"

#include "Windows.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Stages.h"

#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
using namespace pc;

Origins::Origins(ModuleOp module) {
  module.walk([&](CallOp call) { calls[functions.of(call).body].push_back(call); });
}

void Origins::forEach(Value value, llvm::function_ref<void(Value)> f) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (auto found = calls.find(argument.getOwner()); found != calls.end())
      for (CallOp call : found->second)
        f(call.getInputs()[argument.getArgNumber()]);
  } else if (auto call = value.getDefiningOp<CallOp>()) {
    f(functions.of(call).results()[cast<OpResult>(value).getResultNumber()]);
  } else {
    llvm::for_each(value.getDefiningOp()->getOperands(), f);
  }
}

/// Goes back from the sum, but not past moves that make a value equal on all ranks along `axes`. A pad or mask over one
/// of these axes leaves a value on one rank only; a value of another stage may be such a one.
bool pc::hasLoneAddend(Value sum, ArrayAttr axes, Origins &origins) {
  auto isOver = [&](MoveOpInterface move, bool all) {
    auto own = move.getMoveAxes();
    auto has = [&](Attribute axis) { return llvm::is_contained(own, axis); };
    return all ? llvm::all_of(axes, has) : llvm::any_of(axes, has);
  };
  llvm::SetVector<Value> list;
  auto add = [&](Value value) {
    Operation *op = value.getDefiningOp();
    // In a move over all of `axes`, all ranks have the same value, or a block of it.
    if (!isa_and_nonnull<AllGatherOp, AllReduceOp, ReduceScatterOp>(op) || !isOver(cast<MoveOpInterface>(op), true))
      list.insert(value);
  };
  add(sum);
  for (size_t i = 0; i < list.size(); ++i)
    origins.forEach(list[i], add);
  return llvm::any_of(list, [&](Value value) {
    Operation *op = value.getDefiningOp();
    return isa_and_nonnull<ReceiveOp>(op) ||
           (isa_and_nonnull<PadOp, MaskOp>(op) && isOver(cast<MoveOpInterface>(op), false));
  });
}

namespace {

/// The pass pc-window-moves. A remark about moves that stay is emitted once for each kind, axes and reason.
struct WindowMoves : pc::impl::WindowMovesBase<WindowMoves> {
  using WindowMovesBase::WindowMovesBase;

  /// Splits attention with zigzag order into ring steps. If there are axes, it also splits the products whose operands
  /// are gathered or whose results are scattered over them. Moves that stay are reported with the reason, once per
  /// kind.
  void runOnOperation() override {
    ModuleOp module = getOperation();
    MeshAttr mesh = meshOf(module);
    for (const std::string &axis : axes)
      if (!mesh || llvm::none_of(mesh.getNames(), [&](StringAttr name) { return isAxisOf(name, axis); })) {
        module.emitError() << "pc-window-moves: the mesh has no axis '" << axis << "'";
        return signalPassFailure();
      }
    if (!mesh)
      return;
    bool hasRing = false;
    SmallVector<ArrayAttr> windowed, stayed;
    struct Staying {
      Location loc;
      std::string tensor, product;
      int64_t more = 0;
    };
    // Remarks are grouped, because a model has the same move in every layer.
    std::map<std::pair<std::string, std::string>, Staying> staying; // the first move of its kind, and why
    auto stays = [&](StayingMove one) {
      std::string what = (moveName(one.move.getMoveKind()) + " over '" + axesText(one.move) + "'").str();
      auto [it, isFirst] = staying.try_emplace(
          {what, one.why.str()}, Staying{one.move.getLoc(), sourceName(one.move), sourceName(one.product)});
      it->second.more += !isFirst;
      SmallVector<StringAttr> names = one.move.getMoveAxes();
      stayed.push_back(ArrayAttr::get(&getContext(), SmallVector<Attribute>(names.begin(), names.end())));
    };
    for (func::FuncOp function : module.getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      hasRing |= zigzagRanks(function) > 0;
      if (failed(windowAttention(function, mesh)))
        return signalPassFailure();
    }
    if (!axes.empty())
      windowProducts(module, mesh, axes, windowed, stays);
    if (hasRing)
      tidyCalls(module); // passes the rank's coordinate in the ring to tasks
    for (const auto &[what, first] : staying) {
      InFlightDiagnostic remark = emitRemark(first.loc) << "pc-window-moves: the " << what.first << " of '"
                                                        << first.tensor << "' is not split into ring steps, because '"
                                                        << first.product << "' " << what.second;
      if (first.more)
        remark << "; the same holds for " << first.more << " more";
    }
    if (stageAxisOf(module)) // another stage may have a window over this axis
      return;
    for (const std::string &axis : axes) // if all moves over it stay, the remarks say why
      if (llvm::none_of(llvm::concat<ArrayAttr>(windowed, stayed), [&](ArrayAttr list) {
            return llvm::any_of(list.getAsRange<StringAttr>(), [&](StringAttr name) { return isAxisOf(name, axis); });
          })) {
        module.emitError() << "pc-window-moves: nothing to do over axis '" << axis
                           << "', because no gather over it feeds a matrix product and no product is scattered over "
                              "it; leave the axis out";
        return signalPassFailure();
      }
  }
};

} // namespace
