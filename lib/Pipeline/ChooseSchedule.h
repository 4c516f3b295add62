//===- ChooseSchedule.h - Which chunks, on which stages, in which order --------------------===//
// Turns the schedule that the user asked for (a name, name:CHUNKS, "auto" or a file) into a problem and an order.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_CHOOSESCHEDULE_H
#define PC_LIB_PIPELINE_CHOOSESCHEDULE_H

#include "StepTasks.h"

namespace pc::pipeline {

/// What a cut should need on one rank. A guess: memory is planned much later.
struct Budget {
  double bytes = 0;             ///< 0: any
  std::vector<double> inFlight; ///< per chunk: microbatches whose activations it holds at most; empty: not known
};

/// The chunk of every unit, ascending. `stageOf`: of every chunk. `stages`: "cost" (the slowest chunk is as fast as
/// possible, then the chunks as equal as possible; exact, within the budget if any cut is; stages of several chunks are
/// then made even, as far as moving ends of chunks does it), "layers" (numbers of layers differ by at most one;
/// embedding and head go with the first and the last) or a list of numbers of layers. Nothing, with the reason, where
/// that is not possible.
std::optional<llvm::SmallVector<int>> cutUnits(const Units &units, llvm::ArrayRef<int> stageOf, llvm::StringRef stages,
                                               const Budget &budget, std::string &error);

/// A schedule for a step.
struct Schedule {
  std::string name; ///< what was chosen
  Problem problem;
  Order order;
};

/// How the model is cut for a schedule.
struct Shape {
  std::vector<int> stageOf;     ///< per chunk
  bool split = false;           ///< whether gradients of weights are tasks of their own
  std::vector<double> inFlight; ///< as in Budget
};
/// The problem of a shape but for the number of microbatches; nothing, with the reason unless it was emitted.
using ProblemFor = llvm::function_ref<std::optional<Problem>(const Shape &, std::string &error)>;

/// `schedule` as in pc-pipeline-parallel. Nothing where it does not suit, with the reason unless it was emitted.
std::optional<Schedule> chooseSchedule(llvm::StringRef schedule, int stages, int microbatches, ProblemFor problemFor,
                                       std::string &error);

} // namespace pc::pipeline

#endif
