//===- Compile.h - From a program to any later phase -----------------------------------===//
#ifndef PC_DRIVER_COMPILE_H
#define PC_DRIVER_COMPILE_H

#include "mlir/IR/BuiltinOps.h"
#include "pc/Driver/Phases.h"
#include "pc/Driver/Plan.h"

namespace pc {

struct CompileOptions {
  Plan plan;
  bool train = true;               ///< false: forward and loss only
  std::string optimizer = "adamw"; ///< adamw or sgd
  Phase to = Phase::Exe;
  std::string output = "-";             ///< the executable, or the IR of phase `to`
  std::string emitPlan, report;         ///< files, or empty
  int64_t bucketBytes = 25 << 20;       ///< payload of moves that are started together
  int64_t prefetch = 1;                 ///< units of stored parameters that are gathered ahead
  int64_t prefetchBytes = 0;            ///< payload of a unit and those gathered ahead of it; 0: any
  int64_t inlineOps = 50000;            ///< tasks of a pipeline of more ops than this stay functions up to the kernels
  int64_t memoryLimit = 0;              ///< bytes of one rank's arena; 0: none
  std::string machine = "cpu";          ///< of predicted times: a name of pc::MachineModel, or a file
  bool tellPrediction = false;          ///< a remark says how long a step takes
  bool timing = false;                  ///< print the time of every pass
  bool cuda = false;                    ///< for CUDA devices instead of CPUs
  llvm::SmallVector<std::string> archs; ///< sm_90a, ...; empty: all that are supported
  std::string attention = "library";    ///< CUDA: library (cuDNN) or generated
  bool checkKernels = false;            ///< CUDA: a program that can compare its kernels with the CPU's
  bool standIn = false;                 ///< also an image for the stand-in of the CUDA driver
};

/// Runs the passes of `phase` on a module of the phase before it. On failure the error has been emitted and the status
/// says of which kind it is.
pcrt_status runPhase(mlir::ModuleOp module, Phase phase, const CompileOptions &options);

/// Takes a model program to `options.to` and writes what was asked for.
pcrt_status compile(mlir::ModuleOp module, CompileOptions options);

} // namespace pc

#endif
