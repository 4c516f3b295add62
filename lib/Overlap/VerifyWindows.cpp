//===- VerifyWindows.cpp - Checks that every axis of windows is used in some stage ----------===//
// With a pipeline, one stage may have no moves to window while another one has, so pc-window-moves cannot report an
// unused axis itself. This pass looks at all stages: if no stage has windows over an axis of the option, that is an
// error.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYWINDOWS
#include "pc/Overlap/Passes.h"

using namespace mlir;
using namespace pc;

namespace {
/// Looks for a permute over the axis, or over a part of it, in any stage.
struct VerifyWindows : pc::impl::VerifyWindowsBase<VerifyWindows> {
  using VerifyWindowsBase::VerifyWindowsBase;

  /// A ring step over each given axis, or over a part of it, must exist in some stage.
  void runOnOperation() override {
    for (StringRef axis : axes) {
      WalkResult found = getOperation().walk([&](PermuteOp step) {
        bool here = llvm::any_of(step.getAxes().getAsRange<StringAttr>(), [&](StringAttr name) {
          return name == axis || name.getValue().starts_with((axis + ".").str()); // or the name of a part of the axis
        });
        return here ? WalkResult::interrupt() : WalkResult::advance();
      });
      if (found.wasInterrupted())
        continue;
      getOperation().emitError() << "pc-window-moves: nothing to do over axis '" << axis
                                 << "' in any stage, because no gather over it feeds a matrix product and no product "
                                    "is scattered over it; leave the axis out";
      return signalPassFailure();
    }
  }
};
} // namespace
