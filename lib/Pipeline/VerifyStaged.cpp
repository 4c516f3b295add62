//===- VerifyStaged.cpp - Verifies the programs of all stages together ---------------------===//
// Reads the programs, checks them with the schedule library, and counts the addends of sums.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYSTAGED
#include "pc/Pipeline/Passes.h"

#include "StagePrograms.h"
#include "pc/IR/LeavesByName.h"

#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

/// The constraint that a fault breaks.
static StringRef constraintOf(StringRef fault) {
  if (fault == "flow")
    return "P3";
  if (fault == "collective")
    return "P4";
  return fault == "deadlock" ? "P5" : "P2";
}

/// Emits the fault at the ops of the instructions that it names ("stage 2 #5").
static LogicalResult report(const StagePrograms &stages, const Fault &fault) {
  static llvm::Regex place("stage ([0-9]+) #([0-9]+)");
  SmallVector<std::pair<int, int>> named;
  StringRef rest = fault.text;
  for (SmallVector<StringRef> match; place.match(rest, &match);) {
    std::pair<int, int> at;
    if (!match[1].getAsInteger(10, at.first) && !match[2].getAsInteger(10, at.second) && !llvm::is_contained(named, at))
      named.push_back(at);
    rest = rest.substr(match[0].end() - rest.begin());
  }
  Location loc = stages.steps.front()->getLoc();
  if (!named.empty())
    loc = stages.ops[named[0].first][named[0].second]->getLoc();
  InFlightDiagnostic error = emitError(loc) << "the programs of the stages do not match: " << fault.kind << ": "
                                            << fault.text << " (" << constraintOf(fault.kind) << ")";
  for (auto [stage, index] : named) {
    Operation *op = stages.ops[stage][index];
    error.attachNote(op->getLoc()) << "stage " << stage << " #" << index << " is '" << op->getName() << "' of "
                                   << sourceName(op);
  }
  return error;
}

/// Checks that a stage updates only parameters and states that it holds.
static LogicalResult checkUpdates(const StagePrograms &stages) {
  for (auto [stage, function] : llvm::enumerate(stages.steps)) {
    func::FuncOp step = function;
    LeavesByName held(step.getBody().front());
    for (auto update : step.getOps<UpdateOp>()) {
      bool isState = bool(update.getParameter());
      if (!held.of(update))
        return update.emitOpError() << "sets '" << update.getName() << "'" << (isState ? " of '" : "")
                                    << update.getParameter().value_or("") << (isState ? "'" : "") << ", which stage "
                                    << stage
                                    << " does not own: the new value depends only on parameters of another stage (P7)";
    }
  }
  return success();
}

namespace {
/// The pass pc-verify-staged. Sums are checked only if the schedule library finds no fault.
struct VerifyStaged : pc::impl::VerifyStagedBase<VerifyStaged> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (getOperation().getOps<ModuleOp>().empty())
      return; // there is only one stage
    FailureOr<StagePrograms> stages = StagePrograms::read(getOperation());
    if (failed(stages))
      return signalPassFailure();
    std::optional<Fault> fault = verify(stages->problem, stages->program, stages->options);
    if (fault ? failed(report(*stages, *fault)) : failed(checkSums(*stages)) || failed(checkUpdates(*stages)))
      signalPassFailure();
  }
};
} // namespace
