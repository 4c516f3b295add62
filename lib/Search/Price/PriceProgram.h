//===- PriceProgram.h - Prices a program under a plan by compiling it ------------------------===//
// Input: a program, a plan and a machine. Result: figures of the planned program, from the simulation of the report.
// Invariant: a price equals the figures in the report of the same compile; a refused plan has no price.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_PRICEPROGRAM_H
#define PC_LIB_SEARCH_PRICE_PRICEPROGRAM_H

#include "pc/Cost/Report.h"
#include "pc/Cost/TaskMemory.h"
#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

namespace pc {

/// Figures of a program that was compiled to the planned phase.
struct ProgramPrice {
  PlanTrial trial;
  double programSeconds = 0;      ///< the step, on the simulated clock of the ranks
  double microbatchSeconds = 0;   ///< one more microbatch; only without stages
  double forwardShare = 0;        ///< share of the forward pass in a microbatch's seconds; only without stages
  double aheadSeconds = 0;        ///< the last microbatch, before its layers and, in the backward pass, after them
  double optimizerSeconds = 0;    ///< after all passes, without moves; only without stages
  ArenaParts arena;               ///< only without stages
  int64_t besideArena = 0;        ///< the part of `trial.bytes` outside the arena
  int64_t hostBytes = 0;          ///< the bytes that a rank keeps on its host, at most
  double activationBytes = 0;     ///< the maximum; only without stages
  std::vector<TaskMemory> memory; ///< only for pipelines, by stage
  double hopSeconds = 0;          ///< a message to the next stage
  double hopBackSeconds = 0;      ///< the gradient's message back
  /// For each stage, the ops of the program that pc-pipeline-parallel writes, in tasks and outside of them.
  llvm::SmallVector<double> taskOps, otherOps;
  bool callsTasks = false;                   ///< tasks are functions
  llvm::SmallVector<double> tailSeconds;     ///< for each stage, after its last task, without waits for others
  llvm::SmallVector<double> movesBesideIdle; ///< for each stage, as in `StageTimeline`
  /// Seconds of the tasks of a kind and chunk: the median, and those of the first and last microbatch.
  struct TaskSeconds {
    double middle = 0, first = 0, last = 0;
  };
  std::map<std::pair<TaskKind, int64_t>, TaskSeconds> taskSeconds;
};

/// Says which figures to compute, among those that take long.
struct AskedOfPrice {
  bool parts = true;  ///< the parts of `trial`, which need two more simulations
  bool memory = true; ///< `memory`
};

/// Compiles `model`, which it changes, with the plan of `options`, without messages, verifiers, timing or a search.
/// `from` is the phase of the program. If the plan is refused, returns std::nullopt and writes the first error to
/// `refusal`, unless it already holds one. `goesOn` is called before each phase; if it returns false, the result is
/// also std::nullopt.
std::optional<ProgramPrice> priceProgram(
    mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine, std::string &refusal,
    llvm::function_ref<bool()> goesOn = [] { return true; }, AskedOfPrice asked = {}, Phase from = Phase::Model);

/// Compiles `model` to the placed phase like priceProgram. Returns false if the plan is refused.
bool placeProgram(mlir::ModuleOp model, const CompileOptions &options);

/// Prices a program on several machines with one compile, without the parts of `trial`, and without cores. Returns an
/// empty list if the plan is refused.
std::vector<ProgramPrice> priceProgramOn(llvm::ArrayRef<MachineModel> machines, mlir::ModuleOp model,
                                         const CompileOptions &options);

} // namespace pc

#endif
