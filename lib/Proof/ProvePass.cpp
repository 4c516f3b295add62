//===- ProvePass.cpp - The proof as a pass ---------------------------------------------------===//
// Inputs: a module and the file of its step program (`reference`), optionally the file of an earlier phase (`before`),
// which makes the error more precise. The module is not changed.
//===-----------------------------------------------------------------------------===//
#include "pc/Proof/Passes.h"
#include "pc/Proof/Proof.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/Support/Source.h"

namespace pc {
#define GEN_PASS_DEF_PROVE
#include "pc/Proof/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {
struct Prove : pc::impl::ProveBase<Prove> {
  using ProveBase::ProveBase;

  void runOnOperation() override {
    Proof proof;
    if (failed(prove(proof)))
      signalPassFailure();
  }

  /// If the program before a pass is given, it is proved first, because the pass did not cause its errors.
  LogicalResult prove(Proof &proof) {
    if (reference.empty())
      return getOperation().emitError() << "pc-prove: the step program is missing; give it as reference=step.mlir";
    llvm::SourceMgr sources, others;
    OwningOpRef<ModuleOp> step = parseProgram(reference, sources, &getContext());
    if (!step || failed(proof.begin(*step)))
      return failure();
    if (!before.empty()) {
      OwningOpRef<ModuleOp> earlier = parseProgram(before, others, &getContext());
      if (!earlier || failed(proof.prove(*earlier, "before")))
        return failure();
    }
    return proof.prove(getOperation(), "given");
  }
};
} // namespace
