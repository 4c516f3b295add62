//===- Lower.cpp - Kernels to the LLVM dialect ---------------------------------------------===//
// The module's kernels contain arith, math, vector and scf ops; its step functions are already in the LLVM dialect. CSE
// and hoisting run before the lowering, while loops are still loops.
//===-----------------------------------------------------------------------------===//
#include "Lower.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace {
/// Expands exp, log and erf to polynomials, because LLVM would call libm for each element.
struct ApproximateMath : PassWrapper<ApproximateMath, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ApproximateMath)
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, vector::VectorDialect>();
  }
  /// Replaces ops of the math dialect by polynomials.
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns);
    // Only math ops are rewritten, because a greedy rewrite of the whole module would also try to fold the constant
    // tables.
    GreedyRewriteConfig config;
    SmallVector<Operation *> math;
    getOperation().walk([&](Operation *op) {
      // The polynomials of sin and cos are exact only for small angles, so these two call libm.
      if (op->getName().getDialectNamespace() == "math" && !isa<math::SinOp, math::CosOp>(op))
        math.push_back(op);
    });
    if (failed(applyOpPatternsGreedily(math, std::move(patterns), config)))
      signalPassFailure();
  }
};

/// Runs CSE in kernels, but not in steps. In a step, an address that many calls share would stay in a register or on
/// the stack for the whole step, and register allocation would take time quadratic in the number of calls.
struct SimplifyKernels : PassWrapper<SimplifyKernels, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SimplifyKernels)
  void runOnOperation() override {
    OpPassManager passes(LLVM::LLVMFuncOp::getOperationName());
    passes.addPass(createCSEPass());
    passes.addPass(createLoopInvariantCodeMotionPass());
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (!pc::isStep(function.getName()) && failed(runPipeline(passes, function)))
        return signalPassFailure();
  }
};
} // namespace

/// Kernels are simplified first, while their loops are still ops.
LogicalResult pc::lowerToLLVM(ModuleOp module) {
  PassManager passes(module.getContext());
  passes.enableVerifier(false);
  passes.addPass(std::make_unique<SimplifyKernels>());
  passes.addPass(std::make_unique<ApproximateMath>());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertVectorToLLVMPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  return passes.run(module);
}
