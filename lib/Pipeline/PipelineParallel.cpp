//===- PipelineParallel.cpp - Placed program -> the programs of pipeline stages ------------===//
// The pass cuts the model, chooses a schedule, checks the order, and writes exactly this order.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PIPELINEPARALLEL
#include "pc/Pipeline/Passes.h"

#include "ChooseSchedule.h"
#include "StageWriter.h"
#include "pc/IR/AnyOp.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Parts.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

struct PipelineParallel : pc::impl::PipelineParallelBase<PipelineParallel> {
  using PipelineParallelBase::PipelineParallelBase;

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
    auto accumulates = llvm::to_vector(function.getOps<AccumulateOp>());
    if (accumulates.size() != 1)
      return fail("needs a step with exactly one pc.accumulate");
    AccumulateOp accumulate = accumulates[0];

    std::string error;
    std::optional<MachineModel> machine = MachineModel::find(this->machine, error);
    if (!machine)
      return fail(error);
    FailureOr<Units> found = Units::find(accumulate, mesh, *machine);
    if (failed(found))
      return signalPassFailure();
    const Units &units = *found;
    std::map<std::pair<std::vector<int>, bool>, StepTasks> cuts; // by stages of chunks, and whether W are tasks
    auto problemFor = [&](const Shape &shape, std::string &error) -> std::optional<Problem> {
      // Schedules of the same chunks and split share one cut: the graph is read once for them.
      int chunks = static_cast<int>(shape.stageOf.size());
      auto chunkOf = cutUnits(units, shape.stageOf, this->stages, {static_cast<double>(memory), shape.inFlight}, error);
      if (!chunkOf)
        return std::nullopt;
      auto it = cuts.find({shape.stageOf, shape.split});
      if (it == cuts.end()) {
        FailureOr<StepTasks> tasks = StepTasks::find(accumulate, units, *chunkOf, shape.split);
        if (failed(tasks))
          return std::nullopt;
        it = cuts.try_emplace({shape.stageOf, shape.split}, std::move(*tasks)).first;
      }
      Problem problem = it->second.problem(mesh, name, *machine);
      problem.stageOf = shape.stageOf;
      problem.stages = stages;
      // Bytes that a stage needs all the time (fixed bytes, workspace) are subtracted from the limit; the rest is for
      // activations.
      if (memory > 0) {
        problem.limit.assign(stages, static_cast<double>(memory));
        for (auto [unit, chunk] : llvm::enumerate(*chunkOf))
          problem.limit[shape.stageOf[chunk]] -= units.fixed[unit];
        std::vector<double> workspace(stages);
        for (int chunk = 0; chunk < chunks; ++chunk) {
          double &most = workspace[shape.stageOf[chunk]];
          most = std::max(most, it->second.workspace(chunk, mesh));
        }
        for (int stage = 0; stage < stages; ++stage)
          problem.limit[stage] -= workspace[stage];
      }
      return problem;
    };
    auto chosen = chooseSchedule(schedule, stages, static_cast<int>(accumulate.getMicrobatches()), problemFor, error);
    if (!chosen)
      return error.empty() ? signalPassFailure() : fail(error);

    Problem &problem = chosen->problem;
    if (accumulate.getBody().getOps<SeedOp>().empty()) { // evaluation: only forward tasks remain
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

    // A stage has only some of the parameters. The key of each is its index among all parameters.
    int64_t key = 0;
    for (auto parameter : function.getOps<ParameterOp>()) {
      parameter.setKey(key);
      key += numParts(parameter);
    }
    FlowNumbers flows;
    StageWriter::Step step{module,  function, accumulate, cuts.at({problem.stageOf, problem.split}),
                           problem, slots,    flows};
    std::vector<StageWriter> writers;
    writers.reserve(stages);
    for (int stage = 0; stage < stages; ++stage) {
      writers.emplace_back(step, stage);
      writers.back().writeTasks(program.stages[stage]);
    }
    if (failed(writeUpdates(writers, step, name)))
      return signalPassFailure();
    int64_t ops = 0;
    for (StageWriter &writer : writers) {
      writer.finish();
      ops += writer.numOps();
    }
    if (ops <= inlineOps)
      for (StageWriter &writer : writers)
        inlineCalls(writer.getModule());
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (!isa<ModuleOp>(op))
        op.erase();
    module->setAttr("pc.stage_axis", name);
  }

  void fail(const llvm::Twine &message) {
    getOperation().emitError() << "pc-pipeline-parallel: " << message;
    signalPassFailure();
  }
};

} // namespace
