//===- ChooseSchedule.h - Chooses chunks, their stages, and the order of tasks -------------===//
// Turns the schedule that the user asked for (a name, name:CHUNKS, "auto" or a file) into a problem and an order.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_CHOOSESCHEDULE_H
#define PC_LIB_PIPELINE_CHOOSESCHEDULE_H

#include "StepTasks.h"

namespace pc::pipeline {

/// The most memory that a cut may need on one rank. The need of a cut is only an estimate, because memory is planned
/// much later.
struct Budget {
  double bytes = 0;             ///< 0: no limit
  std::vector<double> inFlight; ///< for each chunk, the most microbatches whose activations it holds; empty: not known
};

/// Returns the chunk of every unit, ascending. If no cut is possible, returns std::nullopt and sets `error`. `stageOf`
/// is the stage of every chunk. `stages` is one of:
/// * "cost": the slowest chunk is as fast as possible, then the chunks are as equal as possible. This is exact, and
///   within the budget if any cut is. Then ends of chunks are moved to balance stages that have several chunks.
/// * "layers": numbers of layers differ by at most one. The embedding and the head belong to the first and the last
///   chunk.
/// * a list: the number of layers of each chunk.
std::optional<llvm::SmallVector<int>> cutUnits(const Units &units, llvm::ArrayRef<int> stageOf, llvm::StringRef stages,
                                               const Budget &budget, std::string &error);

/// A schedule for a step.
struct Schedule {
  std::string name; ///< the chosen schedule
  Problem problem;
  Order order;
};

/// How the model is cut for a schedule.
struct Shape {
  std::vector<int> stageOf;     ///< per chunk
  bool split = false;           ///< whether gradients of weights are separate tasks
  std::vector<double> inFlight; ///< as in Budget
};
/// Returns the problem of a shape, without the number of microbatches. If there is none, returns std::nullopt, and sets
/// the error unless one was emitted.
using ProblemFor = llvm::function_ref<std::optional<Problem>(const Shape &, std::string &error)>;

/// Chooses a schedule. `schedule` is the option of pc-pipeline-parallel. If it does not fit the problem, returns
/// std::nullopt, and sets the error unless one was emitted.
std::optional<Schedule> chooseSchedule(llvm::StringRef schedule, int stages, int microbatches, ProblemFor problemFor,
                                       std::string &error);

} // namespace pc::pipeline

#endif
