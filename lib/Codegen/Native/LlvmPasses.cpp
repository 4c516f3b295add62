//===- LlvmPasses.cpp - Passes of LLVM on a module -------------------------------------------===//
// Sets up LLVM's new pass manager, which needs its analyses registered with each other before any pass can run.
//===-----------------------------------------------------------------------------===//
#include "LlvmPasses.h"

#include "llvm/Passes/StandardInstrumentations.h"

/// Sets up the analyses that the new pass manager needs.
void pc::runLlvmPasses(llvm::Module &module, llvm::TargetMachine *machine,
                       llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> passes) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassInstrumentationCallbacks callbacks;
  llvm::OptNoneInstrumentation optNone(/*DebugLogging=*/false); // without it these passes ignore the attribute
  optNone.registerCallbacks(callbacks);
  llvm::PassBuilder builder(machine, llvm::PipelineTuningOptions(), std::nullopt, &callbacks);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  passes(builder).run(module, modules);
}

void pc::runLlvmPasses(llvm::Module &module, llvm::TargetMachine *machine, llvm::OptimizationLevel level) {
  runLlvmPasses(module, machine,
                [&](llvm::PassBuilder &builder) { return builder.buildPerModuleDefaultPipeline(level); });
}

void pc::optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine) {
  // Kernels are already vectorized, tiled and unrolled, so these passes give the same code as O3 in a sixth of the
  // time. Unswitching moves a condition for a whole row (whether an update is skipped) out of its loop.
  constexpr llvm::StringLiteral passes =
      "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
      "loop-mssa(loop-rotate,licm,simple-loop-unswitch<nontrivial>),simplifycfg,instcombine<no-verify-fixpoint>,"
      "loop(indvars,loop-deletion),gvn,dse,instcombine<no-verify-fixpoint>,simplifycfg)";
  runLlvmPasses(module, &machine, [&](llvm::PassBuilder &builder) {
    llvm::ModulePassManager manager;
    llvm::cantFail(builder.parsePassPipeline(manager, passes));
    return manager;
  });
}
