//===- PipelineParallel.cpp - Placed program -> the programs of pipeline stages ------------===//
// Cut, schedule, check, write. What is written is the order that was checked.
//===-----------------------------------------------------------------------------===//
#include "ChooseSchedule.h"
#include "StageWriter.h"
#include "pc/Pipeline/Passes.h"

namespace pc {
#define GEN_PASS_DEF_PIPELINEPARALLEL
#include "pc/Pipeline/Passes.h.inc"
} // namespace pc

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
      return fail("needs a placed program with @step, and the mesh axis '" + axis + "'");
    if (stages == 1)
      return;
    auto accumulates = llvm::to_vector(function.getOps<AccumulateOp>());
    if (accumulates.size() != 1)
      return fail("needs a step with one pc.accumulate");
    AccumulateOp accumulate = accumulates[0];
    if (accumulate.getBody().getOps<SeedOp>().empty())
      return fail("a program without a backward pass cannot be cut into stages yet; use --mode=train");

    Units units = Units::find(accumulate);
    std::map<std::pair<int, bool>, StepTasks> cuts; // by number of chunks and whether weights are apart
    auto problemFor = [&](int chunks, bool split, std::string &error) -> std::optional<Problem> {
      auto it = cuts.find({chunks, split});
      if (it == cuts.end()) {
        auto chunkOf = cutUnits(units, chunks, this->stages, error);
        FailureOr<StepTasks> tasks = failure();
        if (chunkOf)
          tasks = StepTasks::find(accumulate, units, *chunkOf, split);
        if (failed(tasks))
          return std::nullopt;
        it = cuts.try_emplace({chunks, split}, std::move(*tasks)).first;
      }
      return it->second.problem(mesh);
    };
    std::string error;
    auto chosen = chooseSchedule(schedule, stages, static_cast<int>(accumulate.getMicrobatches()), problemFor, error);
    if (!chosen)
      return error.empty() ? signalPassFailure() : fail(error);

    const Problem &problem = chosen->problem;
    Program program = placeInline(problem, chosen->order);
    int slots = slotsFor(problem, program);
    VerifyOptions options;
    options.slots = 0; // what is received is copied
    options.buffered = slots;
    if (std::optional<Fault> fault = verify(problem, program, options))
      return fail("schedule '" + chosen->name + "': " + fault->kind + ": " + fault->text);

    FlowNumbers flows;
    StageWriter::Step step{module,  function, accumulate, cuts.at({problem.chunks(), problem.split}),
                           problem, slots,    flows};
    SmallVector<StageWriter> writers;
    for (int stage = 0; stage < stages; ++stage) {
      writers.emplace_back(step, stage);
      writers.back().writeTasks(program.devices[stage]);
    }
    writeUpdates(writers, step, name);
    for (StageWriter &writer : writers)
      writer.finish();
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
