//===- LowerToNVVM.cpp - gpu.module -> LLVM and NVVM dialects ----------------------------------===//
// Runs MLIR's GPU pipeline without the code generator, and with additional lowerings: reductions over a subgroup, and
// masks.
//===------------------------------------------------------------------------------------------===//
#include "Compile.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace {
/// Expands reductions over the 32 lanes of a subgroup, or over clusters of them, to butterfly shuffles, and masks to
/// comparisons.
struct ExpandForNVVM : PassWrapper<ExpandForNVVM, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandForNVVM)
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, vector::VectorDialect, gpu::GPUDialect>();
  }
  /// Runs only if there is such an op, because the patterns take time.
  void runOnOperation() override {
    WalkResult found = getOperation().walk([&](Operation *op) {
      return isa<gpu::SubgroupReduceOp, vector::CreateMaskOp, vector::ConstantMaskOp>(op) ? WalkResult::interrupt()
                                                                                          : WalkResult::advance();
    });
    if (!found.wasInterrupted())
      return;
    RewritePatternSet patterns(&getContext());
    populateGpuBreakDownSubgroupReducePatterns(patterns, /*maxShuffleBitwidth=*/32, PatternBenefit(3));
    populateGpuLowerSubgroupReduceToShufflePatterns(patterns, /*subgroupSize=*/32);
    populateGpuLowerClusteredSubgroupReduceToShufflePatterns(patterns, /*subgroupSize=*/32);
    vector::populateVectorMaskMaterializationPatterns(patterns, /*force32BitVectorIndices=*/true);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace

/// MLIR's passes that lower a gpu.module. A pass comes after the passes whose output it needs.
OwningOpRef<ModuleOp> pc::toolchain::lowerToNVVM(mlir::gpu::GPUModuleOp module) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry; // convert-gpu-to-nvvm reads lowerings from the registered dialects
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  index::registerConvertIndexToLLVMInterface(registry);
  registerConvertMathToLLVMInterface(registry);
  registerConvertMemRefToLLVMInterface(registry);
  registerConvertNVVMToLLVMInterface(registry);
  ub::registerConvertUBToLLVMInterface(registry);
  vector::registerConvertVectorToLLVMInterface(registry);
  context->appendDialectRegistry(registry);
  // The passes need a module, so they run on one that holds only a copy of the gpu.module.
  OwningOpRef<ModuleOp> lowered = ModuleOp::create(module.getLoc());
  lowered->getBody()->push_back(module->clone());

  PassManager passes(context);
  passes.addPass(std::make_unique<ExpandForNVVM>());
  passes.addPass(createConvertNVGPUToNVVMPass());
  passes.addPass(createConvertVectorToSCFPass());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertNVVMToLLVMPass());
  passes.addPass(memref::createExpandStridedMetadataPass());
  passes.addPass(createLowerAffinePass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertIndexToLLVMPass({/*indexBitwidth=*/64}));
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  // Indices are 64 bits wide, because tensors may have more than 2^32 bytes. Pointer arguments are passed as plain
  // pointers, as the runtime launches kernels.
  ConvertGpuOpsToNVVMOpsOptions toNVVM;
  toNVVM.indexBitwidth = 64;
  toNVVM.useBarePtrCallConv = true;
  OpPassManager &device = passes.nest<mlir::gpu::GPUModuleOp>();
  device.addPass(createConvertGpuOpsToNVVMOps(toNVVM));
  device.addPass(createCanonicalizerPass());
  device.addPass(createCSEPass());
  device.addPass(createReconcileUnrealizedCastsPass());
  passes.addPass(LLVM::createDIScopeForLLVMFuncOpPass()); // line numbers for reports of the stand-in; PTX has none
  if (failed(passes.run(*lowered)))
    return nullptr;
  return lowered;
}
