//===- PriceProgram.h - What a program costs by a plan, by compiling it ----------------------===//
// Input: a program, a plan and a machine. Result: figures of the planned program, from the simulation of the report.
// Invariant: a price equals the figures in the report of the same compile; a refused plan has no price.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_PRICEPROGRAM_H
#define PC_LIB_SEARCH_PRICE_PRICEPROGRAM_H

#include "pc/Cost/TaskMemory.h"
#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

namespace pc {

/// Figures of a program that was compiled to the planned phase.
struct ProgramPrice {
  PlanTrial trial;
  double programSeconds = 0;      ///< of the step, by the clock of the ranks
  double microbatchSeconds = 0;   ///< that one more microbatch takes; without stages only
  double forwardShare = 0;        ///< of a microbatch's seconds, those of work forward; without stages only
  double aheadSeconds = 0;        ///< of the last microbatch, ahead of its layers and, on the way back, after them
  double optimizerSeconds = 0;    ///< after all passes, without moves; without stages only
  int64_t besideArena = 0;        ///< bytes of `trial.bytes` that are not in the arena
  double activationBytes = 0;     ///< at most; without stages only
  std::vector<TaskMemory> memory; ///< of pipelines, by stage
  double hopSeconds = 0;          ///< of a message from a stage to the next
  double hopBackSeconds = 0;      ///< and of its gradient back
  /// By stage, ops of the program as the pipeline makes it, in tasks and besides.
  llvm::SmallVector<double> taskOps, otherOps;
  bool callsTasks = false;               ///< tasks are functions
  llvm::SmallVector<double> tailSeconds; ///< by stage: of what follows its last task, without waits for other stages
  llvm::SmallVector<double> movesBesideIdle; ///< by stage, as `StageTimeline` has it
  /// Seconds of the tasks of a kind and chunk: the middle of all, and those of the first and last microbatch.
  struct TaskSeconds {
    double middle = 0, first = 0, last = 0;
  };
  std::map<std::pair<TaskKind, int64_t>, TaskSeconds> taskSeconds;
};

/// Figures that take long to find.
struct AskedOfPrice {
  bool parts = true;  ///< how long `trial` takes without moves and without memory traffic: two more simulations
  bool memory = true; ///< `memory`
};

/// Compiles `model`, which it changes, by the plan of `options`, quietly: without verifiers, timing or a search.
/// Nothing where the plan is refused; the first error is added to `refusal` if that is empty. Nor where `goesOn`, asked
/// before each phase, says no. `from`: the phase of the program, if it is not a model's.
std::optional<ProgramPrice> priceProgram(
    mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine, std::string &refusal,
    llvm::function_ref<bool()> goesOn = [] { return true; }, AskedOfPrice asked = {}, Phase from = Phase::Model);

/// Compiles `model` to the placed phase, in the same way; false where the plan is refused.
bool placeProgram(mlir::ModuleOp model, const CompileOptions &options);

/// Prices a program on several machines by one compile, without the parts that `trial` has, and without cores. Empty if
/// the plan is refused.
std::vector<ProgramPrice> priceProgramOn(llvm::ArrayRef<MachineModel> machines, mlir::ModuleOp model,
                                         const CompileOptions &options);

} // namespace pc

#endif
