//===- Interpreter.cpp - Runs programs of every phase ------------------------------------===//
// A placed program runs twice: erased on one device, which leaves a trace of all values, then on the ranks, whose
// values are compared with the trace. A planned program keeps its values in one arena per rank. Programs of stages have
// a Machine each; one that must wait is resumed later.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Interpreter.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Stages.h"

#include "CheckProgram.h"
#include "Machine.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace pc;

namespace {

/// `@step`, else `@model`, else the only function.
func::FuncOp programOf(ModuleOp module) {
  for (StringRef name : {"step", "model"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name); function && !function.isExternal())
      return function;
  auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
  return functions.size() == 1 && !functions[0].isExternal() ? functions[0] : func::FuncOp();
}

bool isPlaced(func::FuncOp function) {
  return function
      .walk([](Operation *op) {
        return llvm::any_of(op->getResultTypes(), [](Type type) { return bool(placement(type)); })
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

} // namespace

bool pc::hasBf16(ModuleOp module) {
  return module
      .walk([](Operation *op) {
        return WalkResult(failure(llvm::any_of(op->getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<RankedTensorType>(type);
          return tensor && tensor.getElementType().isBF16();
        })));
      })
      .wasInterrupted();
}

Tensor *pc::find(Results &results, StringRef name) {
  auto it = llvm::find_if(results, [&](const NamedTensor &result) { return result.name == name; });
  return it == results.end() ? nullptr : &it->value;
}

/// Puts the results of a stage to those of the others. What several stages give must be the same.
static LogicalResult merge(Results &all, Results stage, func::FuncOp function, double tolerance) {
  for (NamedTensor &result : stage) {
    Tensor *known = find(all, result.name);
    if (!known)
      all.push_back(std::move(result));
    else if (double difference = largestDifference(*known, result.value); difference > tolerance)
      return function.emitError() << "gives another '" << result.name
                                  << "' than a stage before it: relative difference "
                                  << llvm::formatv("{0:e}", difference).str();
  }
  return success();
}

/// Runs the programs of all stages: each until it must wait, in turns.
static FailureOr<Results> interpretStages(ModuleOp module, const RunOptions &options) {
  auto axis = module->getAttrOfType<StringAttr>("pc.stage_axis");
  SmallVector<ModuleOp> stages = llvm::to_vector(module.getOps<ModuleOp>());
  MeshAttr mesh = meshOf(stages.front());
  if (!axis || !mesh || mesh.size(axis) != static_cast<int64_t>(stages.size()))
    return module.emitError() << "expected one module per coordinate of the axis of stages";
  StageLink link(mesh, axis);
  std::vector<Feeds> feeds;
  std::vector<func::FuncOp> functions;
  for (ModuleOp stage : stages) {
    func::FuncOp function = programOf(stage);
    if (!function || !function.getBody().hasOneBlock() || function.getNumArguments())
      return stage.emitError() << "expected a function @step of one block without arguments";
    if (meshOf(stage) != mesh)
      return stage.emitError() << "has another mesh than the first stage";
    if (failed(checkProgram(function, mesh)))
      return failure();
    functions.push_back(function);
    feeds.emplace_back(function, options.seed);
  }
  std::vector<std::unique_ptr<Machine>> machines;
  for (auto [s, stage] : llvm::enumerate(stages)) {
    int64_t arenaBytes = -1;
    for (ArenaOp arena : stage.getOps<ArenaOp>())
      arenaBytes = arena.getBytes();
    machines.push_back(std::make_unique<Machine>(functions[s], options, feeds[s], Ranks(link.meshOfStage()),
                                                 /*erased=*/false, arenaBytes));
    machines.back()->link = &link;
    machines.back()->stage = static_cast<int>(s);
    if (failed(machines.back()->begin()))
      return failure();
  }
  for (bool progress = true, waiting = true; waiting;) {
    if (!progress) {
      InFlightDiagnostic error = module.emitError() << "the stages wait for each other";
      for (auto [s, machine] : llvm::enumerate(machines))
        if (Operation *op = machine->waitingAt())
          error.attachNote(op->getLoc()) << "stage " << s << " at '" << op->getName() << "'";
      return error;
    }
    progress = waiting = false;
    for (auto &machine : machines) {
      Operation *before = machine->waitingAt();
      if (failed(machine->resume()))
        return failure();
      progress |= machine->waitingAt() != before;
      waiting |= machine->waitingAt() != nullptr;
    }
  }
  if (Operation *send = link.leftOver())
    return send->emitOpError() << "sends what no stage receives";
  Results all;
  for (auto [s, machine] : llvm::enumerate(machines))
    if (failed(machine->finish()) || failed(merge(all, machine->takeResults(), functions[s], options.tolerance)))
      return failure();
  return all;
}

FailureOr<Results> pc::interpret(ModuleOp module, const RunOptions &options) {
  if (module.walk([](CallOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
    OwningOpRef<ModuleOp> written = module.clone();
    for (ModuleOp program : programsOf(*written))
      inlineCalls(program);
    return interpret(*written, options);
  }
  if (!module.getOps<ModuleOp>().empty())
    return interpretStages(module, options);
  func::FuncOp function = programOf(module);
  if (!function)
    return module.emitError() << "nothing to interpret: expected @step, @model or a single function";
  if (!function.getBody().hasOneBlock() || function.getNumArguments())
    return function.emitError() << "the interpreter runs functions of one block without arguments";
  if (failed(checkProgram(function, meshOf(module))))
    return failure();
  Feeds feeds(function, options.seed);
  Ranks ranks(meshOf(module));
  std::vector<Tensor> trace;
  bool placed = isPlaced(function);
  if (placed) {
    Machine device(function, options, feeds, Ranks(MeshAttr()), /*erased=*/true, /*arenaBytes=*/-1);
    device.record = &trace;
    if (failed(device.run()))
      return failure();
  }
  int64_t arenaBytes = -1;
  for (ArenaOp arena : module.getOps<ArenaOp>())
    arenaBytes = arena.getBytes();
  Machine machine(function, options, feeds, ranks, /*erased=*/false, arenaBytes);
  if (placed)
    machine.expected = &trace;
  if (failed(machine.run()))
    return failure();
  return machine.takeResults();
}
