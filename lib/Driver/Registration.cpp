//===- Registration.cpp - Dialects and passes of the whole compiler ----------------===//
// All tools and tests register the same dialects and passes, so that any program of any phase can be read by each of
// them.
//===-------------------------------------------------------------------------------===//
#include "pc/Driver/Registration.h"
#include "pc/Driver/Compile.h"
#include "pc/Driver/Passes.h"

#include "pc/Autodiff/Passes.h"
#include "pc/Codegen/Passes.h"
#include "pc/Cost/Passes.h"
#include "pc/Localize/Passes.h"
#include "pc/Memory/Passes.h"
#include "pc/Overlap/Passes.h"
#include "pc/Pipeline/Passes.h"
#include "pc/Proof/Passes.h"
#include "pc/Raise/Passes.h"
#include "pc/Reference/Passes.h"
#include "pc/Shard/Passes.h"
#include "pc/Tactics/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Passes.h"

void pc::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<pc::PCDialect, mlir::func::FuncDialect>();
  createGenerateKernels()->getDependentDialects(registry);
}

void pc::registerPasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  registerRaisePasses();
  registerAutodiffPasses();
  registerCostPasses();
  registerShardPasses();
  registerTacticsPasses();
  registerPipelinePasses();
  registerLocalizePasses();
  registerOverlapPasses();
  registerMemoryPasses();
  registerCodegenPasses();
  registerReferencePasses();
  registerProofPasses();
  registerDriverPasses();
  registerPhasePipelines();
}
