//===- ChooseSchedule.h - Which chunks, on which stages, in which order --------------------===//
// From what the user wrote to a problem and an order for it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_CHOOSESCHEDULE_H
#define PC_LIB_PIPELINE_CHOOSESCHEDULE_H

#include "StepTasks.h"

namespace pc::pipeline {

/// The chunk of every unit, ascending. `stages`: "cost" (the slowest chunk is as fast as possible, then the chunks as
/// equal as possible; exact), "layers" (numbers of layers differ by at most one; embedding and head go with the first
/// and the last) or a list of numbers of layers. Nothing, with the reason, where that is not possible.
std::optional<llvm::SmallVector<int>> cutUnits(const Units &units, int chunks, llvm::StringRef stages,
                                               std::string &error);

/// A schedule for a step.
struct Schedule {
  std::string name; ///< what was chosen
  Problem problem;
  Order order;
};

/// `schedule` as in pc-pipeline-parallel. `problemFor` gives the problem of a number of chunks, with or without
/// gradients of weights apart (without devices and microbatches), or fails after an error. Nothing where the schedule
/// does not suit; `error` is then empty if one was emitted.
std::optional<Schedule>
chooseSchedule(llvm::StringRef schedule, int stages, int microbatches,
               llvm::function_ref<std::optional<Problem>(int chunks, bool split, std::string &error)> problemFor,
               std::string &error);

} // namespace pc::pipeline

#endif
