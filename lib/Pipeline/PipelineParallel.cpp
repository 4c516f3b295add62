//===- PipelineParallel.cpp - Placed program -> the programs of pipeline stages ------------===//
// The pass cuts the model, chooses a schedule, checks the order, and writes exactly this order.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PIPELINEPARALLEL
#include "pc/Pipeline/Passes.h"

#include "ChooseSchedule.h"
#include "StageGeneration.h"
#include "StageWriter.h"
#include "pc/IR/AnyOp.h"
#include "pc/IR/Calls.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

/// The step cut into the tasks of a pipeline, for the schedules that are compared.
struct StepCuts {
  AccumulateOp accumulate;
  const Units &units;
  const MachineModel &machine;
  MeshAttr mesh;
  StringAttr axis;
  int stages;
  StringRef howToCut;                                               ///< as in cutUnits
  double memory;                                                    ///< memory limit in bytes per rank; 0: no limit
  std::map<std::pair<std::vector<int>, bool>, StepTasks> cuts = {}; ///< keyed by `stageOf` and `split` of a shape

  /// If the step cannot be cut in this way, returns std::nullopt and sets `error`, unless an error was emitted.
  std::optional<Problem> problemFor(const Shape &shape, std::string &error) {
    auto chunkOf = cutUnits(units, shape.stageOf, howToCut, {memory, shape.inFlight}, error);
    if (!chunkOf)
      return std::nullopt;
    // Schedules with the same chunks and the same `split` share one cut, so the graph is read only once for them.
    auto it = cuts.find({shape.stageOf, shape.split});
    if (it == cuts.end()) {
      FailureOr<StepTasks> tasks = StepTasks::find(accumulate, units, *chunkOf, shape.split);
      if (failed(tasks))
        return std::nullopt;
      it = cuts.try_emplace({shape.stageOf, shape.split}, std::move(*tasks)).first;
    }
    Problem problem = it->second.problem(mesh, axis, machine);
    problem.stageOf = shape.stageOf;
    problem.stages = stages;
    if (memory > 0)
      setLimits(problem, it->second, *chunkOf);
    return problem;
  }

  const StepTasks &tasksOf(const Problem &problem) const { return cuts.at({problem.stageOf, problem.split}); }

  /// Subtracts the bytes that a stage always needs (fixed bytes, workspace) from the limit; the rest is for
  /// activations.
  void setLimits(Problem &problem, const StepTasks &tasks, ArrayRef<int> chunkOf) const {
    problem.limit.assign(stages, memory);
    for (auto [unit, chunk] : llvm::enumerate(chunkOf))
      problem.limit[problem.stageOf[chunk]] -= units.fixed[unit];
    std::vector<double> workspace(stages);
    for (auto [chunk, stage] : llvm::enumerate(problem.stageOf))
      workspace[stage] = std::max(workspace[stage], tasks.workspace(static_cast<int>(chunk), mesh));
    for (int stage = 0; stage < stages; ++stage)
      problem.limit[stage] -= workspace[stage];
  }
};

/// Writes the programs of all stages into the module, instead of the step.
LogicalResult writeStages(StageWriter::Step &step, const Program &program, StringAttr axis, int64_t inlineOps) {
  numberParameters(step.function);
  std::vector<StageWriter> writers;
  writers.reserve(step.problem.stages);
  for (int stage = 0; stage < step.problem.stages; ++stage) {
    writers.emplace_back(step, stage);
    writers.back().writeTasks(program.stages[stage]);
  }
  if (failed(writeUpdates(writers, step, axis)))
    return failure();
  int64_t ops = 0;
  for (StageWriter &writer : writers) {
    writer.finish();
    ops += writer.numOps();
  }
  if (ops <= inlineOps)
    for (StageWriter &writer : writers)
      inlineCalls(writer.getModule());
  keepStages(step.module, axis);
  return success();
}

/// The pass pc-pipeline-parallel. It finds the units of the model, chooses a schedule for them, checks its program, and
/// replaces the step by the programs of the stages.
struct PipelineParallel : pc::impl::PipelineParallelBase<PipelineParallel> {
  using PipelineParallelBase::PipelineParallelBase;

  /// Checks that the program can be cut, finds the units of the step, chooses a schedule for them, verifies it, and
  /// writes one program per stage.
  void runOnOperation() override {
    ModuleOp module = getOperation();
    MeshAttr mesh = meshOf(module);
    auto name = StringAttr::get(&getContext(), axis);
    int stages = mesh ? static_cast<int>(mesh.size(name)) : 0;
    auto function = module.lookupSymbol<func::FuncOp>("step");
    if (!stages || !function)
      return fail("needs a placed program with a function @step and a mesh with axis '" + axis + "'");
    if (stages == 1)
      return;
    if (anyPlacement(module, [&](PlaceAttr place) { return !place.state(name).isWhole(); }))
      return fail("axis '" + axis + "' is used by an earlier tactic");
    if (anyPlacement(module, [](PlaceAttr place) { return !place.getRoot().empty(); }))
      return fail("naive data parallelism does not work with a pipeline; use --data-parallel=ddp");
    std::string error;
    std::optional<MachineModel> machine = MachineModel::find(this->machine, error);
    if (!machine)
      return fail(error);
    if (generates(function)) {
      if (failed(stageGeneration(module, function, name, this->stages, *machine, static_cast<double>(memory), error)))
        error.empty() ? signalPassFailure() : fail(error);
      return;
    }
    auto accumulates = llvm::to_vector(function.getOps<AccumulateOp>());
    if (accumulates.size() != 1)
      return fail("needs a step with exactly one pc.accumulate");
    AccumulateOp accumulate = accumulates[0];

    FailureOr<Units> units = Units::find(accumulate, mesh, *machine);
    if (failed(units))
      return signalPassFailure();
    StepCuts cuts{accumulate, *units, *machine, mesh, name, stages, this->stages, static_cast<double>(memory)};
    auto problemFor = [&](const Shape &shape, std::string &error) { return cuts.problemFor(shape, error); };
    auto chosen = chooseSchedule(schedule, stages, static_cast<int>(accumulate.getMicrobatches()), problemFor, error);
    if (!chosen)
      return error.empty() ? signalPassFailure() : fail(error);

    Problem &problem = chosen->problem;
    if (accumulate.getBody().getOps<SeedOp>().empty()) { // an evaluation has only forward tasks
      problem.training = false;
      for (auto &tasks : chosen->order)
        std::erase_if(tasks, [](const Task &task) { return task.kind != TaskKind::Forward; });
    }
    // The order is checked as a program of messages before any code is written from it.
    Program program = placeInline(problem, chosen->order);
    int slots = slotsFor(problem, program);
    VerifyOptions options;
    options.slots = 0; // received messages are copied
    options.buffered = slots;
    if (std::optional<Fault> fault = verify(problem, program, options))
      return fail("schedule '" + chosen->name + "': " + fault->kind + ": " + fault->text);
    FlowNumbers flows;
    StageWriter::Step step{module, function, accumulate, cuts.tasksOf(problem), problem, slots, flows};
    if (failed(writeStages(step, program, name, inlineOps)))
      signalPassFailure();
  }

  void fail(const llvm::Twine &message) {
    getOperation().emitError() << "pc-pipeline-parallel: " << message;
    signalPassFailure();
  }
};

} // namespace
