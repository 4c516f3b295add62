//===- Raise.cpp - Replaces pieces by the ops that they spell out ----------------------------===//
// Input and result: a model program. Norms, softmax, sums of exponentials and activations are raised first, in program
// order. Then losses, attention and experts, which contain these ops, are raised. Pieces that nothing reads any more
// are erased.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_RAISE
#include "pc/Raise/Passes.h"

#include "Patterns.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass pc-raise. It changes only the function `@model`.
struct Raise : pc::impl::RaiseBase<Raise> {
  using RaiseBase::RaiseBase;

  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model)
      return;
    raise(model, {raiseNorm, raiseSoftmax, raiseLogSumExp, raiseActivation});
    raise(model, {raiseCrossEntropy, raiseAttention, raiseExperts, raiseExpertLoop});
  }

private:
  /// Tries the patterns at each op in order. Unused pieces are erased from the end, so that their operands become
  /// unused in turn.
  static void raise(func::FuncOp model, ArrayRef<bool (*)(Operation *)> patterns) {
    Block &body = model.getBody().front();
    bool isChanged = false;
    for (Operation &op : llvm::make_early_inc_range(body))
      isChanged |= llvm::any_of(patterns, [&](auto pattern) { return op.getNumResults() && pattern(&op); });
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (isChanged && op.use_empty() && op.getNumResults() && !isa<ParameterOp, InputOp>(op))
        op.erase();
  }
};

} // namespace
