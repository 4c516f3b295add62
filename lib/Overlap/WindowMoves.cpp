//===- WindowMoves.cpp - Moves become steps round a ring, each with a part of the work -------===//
#include "Windows.h"
#include "pc/IR/Stages.h"
#include "pc/Overlap/Passes.h"

namespace pc {
#define GEN_PASS_DEF_WINDOWMOVES
#include "pc/Overlap/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {

struct WindowMoves : pc::impl::WindowMovesBase<WindowMoves> {
  using WindowMovesBase::WindowMovesBase;

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
    SmallVector<ArrayAttr> windowed;
    for (func::FuncOp function : module.getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      if (failed(windowAttention(function, mesh)))
        return signalPassFailure();
      if (axes.empty())
        continue;
      Block &body = function.getBody().front();
      for (auto accumulate : body.getOps<AccumulateOp>())
        windowed.append(windowProducts(accumulate.getBody().front(), mesh, axes));
      windowed.append(windowProducts(body, mesh, axes));
    }
    if (stageAxisOf(module)) // another stage may have what this one lacks
      return;
    for (const std::string &axis : axes)
      if (llvm::none_of(windowed, [&](ArrayAttr list) {
            return llvm::any_of(list.getAsRange<StringAttr>(), [&](StringAttr name) { return isAxisOf(name, axis); });
          })) {
        module.emitError() << "pc-window-moves: nothing to do over axis '" << axis
                           << "': no gather over it feeds a matrix product, and no product is scattered over it";
        return signalPassFailure();
      }
  }
};

} // namespace
