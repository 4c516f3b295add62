//===- Compile.h - From a program to any later phase -----------------------------------===//
// The options of a compilation and the functions that run its phases. Functions that run phases return the process's
// exit status (pcrt_status); unless it is PCRT_OK, errors have been emitted. A search for the plan is not part of it
// (Search/CompletePlan.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_COMPILE_H
#define PC_DRIVER_COMPILE_H

#include "pc/Autodiff/Passes.h"
#include "pc/Codegen/Passes.h"
#include "pc/Memory/Passes.h"
#include "pc/Overlap/Passes.h"
#include "pc/Pipeline/Passes.h"
#include "pc/Plan/AutoPlan.h"
#include "pc/Plan/Phases.h"
#include "pc/Plan/Plan.h"
#include "llvm/Support/JSON.h"
#include <map>
#include <optional>

namespace mlir {
class OpPassManager;
class TimingScope;
} // namespace mlir

namespace pc {

struct MachineModel;

/// The checks of a compile. `None`: only the verifiers of ops. `Phase`: also the verifier at the end of each phase.
/// `Full`: also the proof that the program of each phase computes what the one-device program computes.
enum class Verify { None, Phase, Full };

/// What is compiled, and how. Options of passes are members with the passes' own structs, so their defaults come from
/// Passes.td.
struct CompileOptions {
  Plan plan;
  AutoOptions search;                           ///< finds the plan, if it is switched on
  bool train = true;                            ///< false: only the forward pass
  std::optional<GenerateStepsOptions> generate; ///< set if the program generates text; the plan sets the groups
  std::string weights = "full";     ///< how a generating program stores matrices: full, or the codes of pc-store-codes
  std::optional<bool> packProducts; ///< one product for q, k and v if the plan allows it; unset: for CUDA
  int64_t padVocabulary = 0;        ///< multiple of the padded vocabulary, and of its ranks; 0: the target's default
  int64_t expertsLimit = 0;         ///< rows of experts that are in memory at once; 0: all
  AddAdaptersOptions adapters;      ///< LoRA, if there is any
  GroupParametersOptions groups;    ///< which parameters are frozen, and how the optimizer treats others
  TileParametersOptions tiles;      ///< parameters that are computed in tiles
  ChunkLossOptions lossChunks;      ///< chunks of tokens in which logits and loss are computed
  DifferentiateOptions step;        ///< the plan sets the microbatches
  std::string states = "f32";       ///< how AdamW's states are stored: f32, or 8bit (pc-quantize-states)
  std::string weightPrecision = "full"; ///< how training reads matrices: full, or int8 (pc-quantize-weights)
  std::string machine = PipelineParallelOptions().machine; ///< name or file of the machine for all predicted times
  int64_t memoryLimit = 0;                                 ///< bytes of a rank's arena; 0: no limit
  int64_t inlineOps = PipelineParallelOptions().inlineOps; ///< programs with at most this many ops have inlined tasks
  FuseOptions fuse;
  ScheduleOptions schedule;
  PlanMemoryOptions arena;
  GenerateKernelsOptions kernels; ///< `target`, `attention` and `archs` are also those of other passes
  Verify verify = Verify::Full;
  bool signs = true;          ///< the step's fingerprint goes with the module; a program that is only priced needs none
  bool verifyKernels = false; ///< CPU: compares all compiled kernels with the interpreter; false: with
                              ///< Verify::Full, only the cheap ones
  Phase to = Phase::Exe;
  std::string output = "-";                   ///< the executable, or the IR of phase `to`
  std::string emitPlan, report;               ///< files, or empty
  std::string reference;                      ///< a file with the step program; empty: the program's own hashes
  bool tellPrediction = false;                ///< a remark says how long a step takes
  bool standIn = false;                       ///< an image for the stand-in of the CUDA driver instead of cubins
  std::optional<llvm::json::Object> searched; ///< the results of a search, for the report
  std::string howFound;                       ///< comments in the plan's file by which the search can be repeated
  mlir::TimingScope *timing = nullptr; ///< where the time of every pass is counted; null in tools without MLIR's flags

  /// Whether the program is for CUDA devices instead of CPUs.
  bool cuda() const { return kernels.target == "cuda"; }
  /// Whether products may multiply floats of 8 bits; otherwise they decode them.
  bool multipliesFloat8() const;
  /// Returns the bytes that a rank may take: the memory limit, or if there is none, the memory of the machine. 0: any
  /// number.
  int64_t memoryLimitOn(const MachineModel &machine) const;
  /// Whether one product computes q, k and v if the plan allows it. On a CPU three are faster
  /// (docs/rationale/c-attn.md). Optimizers of matrices need three separate parameters.
  bool packs() const { return packProducts.value_or(cuda() && (step.optimizer == "adamw" || step.optimizer == "sgd")); }
};

/// The exit status for a failure of each pass of a phase, by the pass's argument.
using PhaseFailures = std::map<std::string, pcrt_status>;

/// Adds the passes of `phase` in order. Returns the error in a tactic's options, or "".
std::string buildPhase(mlir::OpPassManager &passes, Phase phase, const CompileOptions &options,
                       PhaseFailures &failures);

/// Registers a pipeline of pc-opt for the passes of every phase, such as --pc-phase-placed. Its options are the flags
/// of pc-compile (Flags.h).
void registerPhasePipelines();

/// Runs the passes of `phase` on a module of the phase before it. On failure an error has been emitted, and the status
/// names its kind.
pcrt_status runPhase(mlir::ModuleOp module, Phase phase, const CompileOptions &options);

/// Runs only the verifiers that end `phase`, on a module of this phase.
pcrt_status verifyPhase(mlir::ModuleOp module, Phase phase, const CompileOptions &options);

/// Changes a model program according to the options: adds adapters, freezes and groups parameters, and reads the
/// optimizer's definition. If the definition is in a file, options.step afterwards names the definition instead of the
/// file. Call it once, before the plan is completed: a search compiles programs with few layers, in which some globs
/// would match nothing. An imported model that was not edited still counts as unedited afterwards. Emits located
/// errors. Returns the exit code.
pcrt_status changeModel(mlir::ModuleOp model, CompileOptions &options);

/// Compiles a program of phase `from` to `options.to`, and writes the output, plan and report that the options name.
pcrt_status compile(mlir::ModuleOp module, Phase from, CompileOptions options);

} // namespace pc

#endif
