//===- Interpreter.cpp - Runs programs of every phase ------------------------------------===//
// A placed program runs twice: erased on one device, which leaves a trace of all values, then on the ranks, whose
// values are compared with the trace. A planned program keeps its values in one arena per rank. Each stage's program
// runs on a Machine. A Machine that has to wait is resumed later.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Interpreter.h"
#include "pc/IR/AnyOp.h"
#include "pc/IR/Calls.h"
#include "pc/IR/StageRunner.h"
#include "pc/IR/Stages.h"

#include "CheckProgram.h"
#include "Machine.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace pc;

namespace {

/// `@step`, or `@model`, or the only function.
func::FuncOp programOf(ModuleOp module) {
  for (StringRef name : {"step", "model"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name); function && !function.isExternal())
      return function;
  auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
  return functions.size() == 1 && !functions[0].isExternal() ? functions[0] : func::FuncOp();
}

/// The function to run, after checking that it can be run.
FailureOr<func::FuncOp> checkedProgramOf(ModuleOp module) {
  func::FuncOp function = programOf(module);
  if (!function)
    return module.emitError() << "this module has nothing to interpret; expected @step, @model or a single function";
  if (!function.getBody().hasOneBlock() || function.getNumArguments())
    return function.emitError() << "the interpreter only runs functions of one block without arguments";
  if (failed(checkProgram(function, meshOf(module))))
    return failure();
  return function;
}

bool isPlaced(func::FuncOp function) {
  return anyPlacement(function, [](PlaceAttr) { return true; });
}

} // namespace

bool pc::hasBf16(ModuleOp module) {
  return anyOp(module, [](Operation *op) {
    return llvm::any_of(op->getResultTypes(), [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return tensor && tensor.getElementType().isBF16();
    });
  });
}

Tensor *pc::find(Results &results, StringRef name) {
  auto it = llvm::find_if(results, [&](const NamedTensor &result) { return result.name == name; });
  return it == results.end() ? nullptr : &it->value;
}

/// Adds the results of a stage to the results of the other stages. Results that several stages have must agree.
static LogicalResult merge(Results &all, Results stage, func::FuncOp function, double tolerance) {
  for (NamedTensor &result : stage) {
    Tensor *known = find(all, result.name);
    if (!known)
      all.push_back(std::move(result));
    else if (double difference = largestDifference(*known, result.value); difference > tolerance)
      return function.emitError() << "computes a different '" << result.name
                                  << "' than an earlier stage: relative difference "
                                  << llvm::formatv("{0:e}", difference).str();
  }
  return success();
}

namespace {
/// The machines of all stages.
struct Stages : StageRunner::Visitor {
  std::vector<std::unique_ptr<Machine>> machines;

  void arrive(int stage, MoveOpInterface move, Value input, int meeting) override {
    machines[stage]->contribute(move, input, meeting);
  }
  LogicalResult visit(int stage, Operation *op) override { return machines[stage]->step(op); }
};
} // namespace

/// Runs one machine per stage, in turn, each until it has to wait for a message, and merges their results.
static FailureOr<Results> interpretStages(ModuleOp module, const RunOptions &options) {
  auto axis = module->getAttrOfType<StringAttr>("pc.stage_axis");
  SmallVector<ModuleOp> stages = llvm::to_vector(module.getOps<ModuleOp>());
  MeshAttr mesh = meshOf(stages.front());
  if (!axis || !mesh || mesh.size(axis) != static_cast<int64_t>(stages.size()))
    return module.emitError() << "expected one module per coordinate of the axis of stages";
  StageLink link(mesh, axis);
  std::vector<Feeds> feeds;
  std::vector<func::FuncOp> functions;
  SmallVector<Block *> programs;
  for (ModuleOp stage : stages) {
    FailureOr<func::FuncOp> checked = checkedProgramOf(stage);
    if (failed(checked))
      return failure();
    func::FuncOp function = *checked;
    if (meshOf(stage) != mesh)
      return stage.emitError() << "has a different mesh than the first stage";
    functions.push_back(function);
    programs.push_back(&function.getBody().front());
    feeds.emplace_back(function, options.seed);
  }
  Stages all;
  for (auto [s, stage] : llvm::enumerate(stages)) {
    auto arenas = llvm::to_vector(stage.getOps<ArenaOp>());
    all.machines.push_back(std::make_unique<Machine>(functions[s], options, feeds[s], Ranks(link.meshOfStage()),
                                                     /*erased=*/false, arenas.empty() ? ArenaOp() : arenas.back()));
    all.machines.back()->link = &link;
    all.machines.back()->stage = static_cast<int>(s);
    if (failed(all.machines.back()->begin()))
      return failure();
  }
  StageRunner runner(axis);
  if (failed(runner.run(programs, all)))
    return failure();
  // All stages have stopped. One that is not at its end waits for a message that never comes.
  if (llvm::any_of(llvm::seq(all.machines.size()), [&](int s) { return runner.waitingAt(s); })) {
    InFlightDiagnostic error = module.emitError() << "the stages wait for each other forever";
    for (size_t s = 0; s < stages.size(); ++s)
      if (Operation *op = runner.waitingAt(s))
        error.attachNote(op->getLoc()) << "stage " << s << " at '" << op->getName() << "'";
    return error;
  }
  if (Operation *send = link.leftOver())
    return send->emitOpError() << "sends a message that no stage receives";
  Results results;
  for (auto [s, machine] : llvm::enumerate(all.machines))
    if (failed(machine->finish()) || failed(merge(results, machine->takeResults(), functions[s], options.tolerance)))
      return failure();
  return results;
}

/// A copy in which calls of task functions are inlined; null if there are none.
static OwningOpRef<ModuleOp> inlined(ModuleOp module) {
  if (!anyOp(module, [](Operation *op) { return isa<CallOp>(op); }))
    return nullptr;
  OwningOpRef<ModuleOp> written = module.clone();
  for (ModuleOp program : programsOf(*written))
    inlineCalls(program);
  return written;
}

LogicalResult pc::canInterpret(ModuleOp module) {
  OwningOpRef<ModuleOp> written = inlined(module);
  return success(llvm::all_of(programsOf(written ? *written : module),
                              [](ModuleOp program) { return succeeded(checkedProgramOf(program)); }));
}

/// There are three cases: a module with calls, a module with stages, and a single program. A placed program on several
/// ranks is first run on one device, for the trace.
FailureOr<Results> pc::interpret(ModuleOp module, const RunOptions &options) {
  if (OwningOpRef<ModuleOp> written = inlined(module))
    return interpret(*written, options);
  if (!module.getOps<ModuleOp>().empty())
    return interpretStages(module, options);
  FailureOr<func::FuncOp> checked = checkedProgramOf(module);
  if (failed(checked))
    return failure();
  func::FuncOp function = *checked;
  Feeds feeds(function, options.seed);
  Ranks ranks(meshOf(module));
  std::vector<Tensor> trace;
  bool placed = isPlaced(function);
  if (placed) {
    Machine device(function, options, feeds, Ranks(MeshAttr()), /*erased=*/true, /*arena=*/{});
    device.record = &trace;
    if (failed(device.run()))
      return failure();
  }
  auto arenas = llvm::to_vector(module.getOps<ArenaOp>());
  Machine machine(function, options, feeds, ranks, /*erased=*/false, arenas.empty() ? ArenaOp() : arenas.back());
  if (placed)
    machine.expected = &trace;
  if (failed(machine.run()))
    return failure();
  return machine.takeResults();
}

/// Puts a clone of `op` into a new function, whose arguments are the operands.
FailureOr<std::vector<Tensor>> pc::interpretOp(ModuleOp program, Operation *op, ArrayRef<Tensor> operands) {
  OpBuilder b(op->getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(b, op->getLoc());
  b.setInsertionPointToEnd(module->getBody());
  for (auto about : program.getOps<ProgramOp>()) // the order of the sequence
    b.clone(*about);
  auto function = func::FuncOp::create(b, op->getLoc(), "alone", b.getFunctionType(op->getOperandTypes(), {}));
  Block *block = function.addEntryBlock();
  b.setInsertionPointToEnd(block);
  Operation *alone = b.clone(*op);
  alone->setOperands(block->getArguments());
  RunOptions options;
  Feeds feeds(function, options.seed);
  Machine machine(function, options, feeds, Ranks(MeshAttr()), /*erased=*/false, /*arena=*/{});
  return machine.runAlone(alone, operands);
}
