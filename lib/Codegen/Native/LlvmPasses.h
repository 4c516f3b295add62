//===- LlvmPasses.h - Passes of LLVM on a module ---------------------------------------------===//
// The passes are used for CPU kernels (optimizeKernels) and for GPU kernels (a whole optimization level).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_NATIVE_LLVMPASSES_H
#define PC_LIB_CODEGEN_NATIVE_LLVMPASSES_H

#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

namespace pc {
/// Runs the passes that `passes` returns. `passes` gets a builder for `machine`, which may be null.
void runLlvmPasses(llvm::Module &module, llvm::TargetMachine *machine,
                   llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> passes);
/// Runs LLVM's passes of this level.
void runLlvmPasses(llvm::Module &module, llvm::TargetMachine *machine, llvm::OptimizationLevel level);
/// Optimizes kernels for a CPU.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine);
} // namespace pc

#endif
