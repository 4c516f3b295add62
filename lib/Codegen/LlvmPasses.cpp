//===- LlvmPasses.cpp - Passes of LLVM on a module -------------------------------------------===//
#include "LlvmPasses.h"

void pc::runLlvmPasses(llvm::Module &module, llvm::TargetMachine *machine,
                       llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> passes) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine);
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
