//===- SearchProblem.h - The input of a search -------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_SEARCHPROBLEM_H
#define PC_LIB_SEARCH_ORDER_SEARCHPROBLEM_H

#include "../Space/FewLayers.h"
#include "../Space/PlanSpace.h"

#include "pc/Search/CompletePlan.h"

namespace pc {

/// How a search prices plans.
enum class Pricing : uint8_t {
  Whole,    ///< compiles each plan whole
  FewLayers ///< composes prices from programs of few layers; then compiles the best plans whole
};

/// The data that a search reads and does not change: the model, the flags, the machine, and the space of plans.
///
/// `read` fills the members that follow from the model; until then, only the constructor's arguments are known.
struct SearchProblem {
  SearchProblem(mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine, Objective objective);
  /// Reads the space and the model. Errors are emitted.
  pcrt_status read();

  pcrt_status fail(pcrt_status status, const llvm::Twine &message) const {
    mlir::ModuleOp(model).emitError() << message;
    return status;
  }
  mlir::MLIRContext *context() const { return mlir::ModuleOp(model).getContext(); }
  /// The memory limit in bytes per rank; 0: no limit.
  int64_t limit() const { return options.memoryLimitOn(machine); }
  bool composes() const { return pricing == Pricing::FewLayers; }
  /// Whether bounds on seconds come from cores and tasks of plans.
  bool boundsByCores() const { return composes() && objective == Objective::Seconds; }
  const FewLayers *fewLayers() const { return few ? &*few : nullptr; }
  /// The most programs that a search compiles.
  int64_t mostCompositions() const;
  /// ", with --auto=tp --zero=1": the flags that were given.
  std::string given() const;

  mlir::ModuleOp model;
  const CompileOptions &options;
  const AutoOptions &search;
  const MachineModel &machine;
  const Objective objective;
  int64_t batch;
  bool hasSequences;
  PlanSpace space;
  StepWork work;
  std::optional<FewLayers> few; ///< unset if layers differ
  Pricing pricing = Pricing::Whole;
  int64_t mostChunks = 1; ///< the most chunks of a pipeline, in all stages together
};

} // namespace pc

#endif
