//===- StagePrograms.cpp - Reads the instructions of stages from their programs ------------===//
// A task's receives and sends are between its `pc.task` and the next one, so the task determines the message of a send
// or receive.
//===-----------------------------------------------------------------------------===//
#include "StagePrograms.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/AnyOp.h"
#include "pc/IR/Calls.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

/// Reads a staged module into `all`. Also checks facts that the schedule library does not know: numbers of stages,
/// types of messages, slots. Errors are emitted at the op.
class StageReader {
public:
  StageReader(ModuleOp module, StagePrograms &all) : module(module), all(all) {}

  /// Reads modules first, then the required tasks, then the instructions of each stage, and checks the ends of messages
  /// last.
  LogicalResult run() {
    all.axis = module->getAttrOfType<StringAttr>("pc.stage_axis");
    if (!all.axis)
      return module.emitError() << "has one program per stage, but no attribute 'pc.stage_axis' (P1)";
    for (ModuleOp stage : module.getOps<ModuleOp>())
      if (failed(readModule(stage)))
        return failure();
    MeshAttr mesh = meshOf(all.steps.front());
    if (!mesh || mesh.size(all.axis) != all.stages())
      return module.emitError() << "has programs of " << all.stages() << " stages, but the axis '"
                                << all.axis.getValue() << "' has " << (mesh ? mesh.size(all.axis) : 0) << " (P1)";
    if (failed(readProblem()))
      return failure();
    all.ops.resize(all.stages());
    all.program.stages.resize(all.stages());
    std::vector<int> everybody;
    for (int stage = 0; stage < all.stages(); ++stage) {
      everybody.push_back(stage);
      if (failed(readStage(stage)))
        return failure();
    }
    findGradients();
    for (auto &instructions : all.program.stages)
      for (Instruction &instruction : instructions)
        if (instruction.type == Instruction::Collective)
          all.program.groups[instruction.group] = everybody;
    return checkEnds();
  }

private:
  /// Checks (P1) for one stage: its number is its position, it has one step, and all stages have the same mesh.
  LogicalResult readModule(ModuleOp stage) {
    auto number = stage->getAttrOfType<IntegerAttr>("pc.stage");
    auto step = stage.lookupSymbol<func::FuncOp>("step");
    if (!number || number.getInt() != all.stages())
      return stage.emitError() << "expected 'pc.stage = " << all.stages() << "' here (P1)";
    if (!step || !step.getBody().hasOneBlock())
      return stage.emitError() << "expected a function @step of one block (P1)";
    all.steps.push_back(step);
    if (meshOf(stage) != meshOf(all.steps.front()))
      return stage.emitError() << "has a different mesh than stage 0 (P1)";
    return success();
  }

  /// Reads the required tasks: those of the named chunks, for every microbatch of the inputs and of a task.
  LogicalResult readProblem() {
    Problem &p = all.problem;
    p.stages = all.stages();
    p.training = false;
    for (auto [stage, step] : llvm::enumerate(all.steps)) {
      for (auto element : step.getOps<MicrobatchOp>())
        p.microbatches = std::max<int>(p.microbatches, cast<ShapedType>(element.getStack().getType()).getDimSize(0));
      for (auto task : step.getOps<TaskOp>()) {
        if (task.getKind() == TaskKind::Optimizer)
          continue;
        if (*task.getChunk() >= (1 << 16) || *task.getMicrobatch() >= (1 << 20))
          return task.emitOpError() << "has a chunk or microbatch that is too large (P2)";
        p.microbatches = std::max(p.microbatches, static_cast<int>(*task.getMicrobatch()) + 1);
        size_t chunk = *task.getChunk();
        if (chunk >= p.stageOf.size()) {
          p.stageOf.resize(chunk + 1, -1);
          p.recompute.resize(chunk + 1);
        }
        if (p.stageOf[chunk] < 0)
          p.stageOf[chunk] = static_cast<int>(stage);
        p.training |= task.getKind() != TaskKind::Forward;
        p.split |= task.getKind() == TaskKind::Weight;
        p.recompute[chunk] += task.getKind() == TaskKind::Recompute;
      }
    }
    p.forward = p.backward = p.weight = std::vector<double>(p.stageOf.size());
    if (auto none = llvm::find(p.stageOf, -1); none != p.stageOf.end() || p.stageOf.empty())
      return module.emitError() << "no stage has a task of chunk " << none - p.stageOf.begin() << " (P2)";
    return success();
  }

  /// Adds an instruction. If it is on the compute stream, it comes after everything that was waited for since the last
  /// one.
  int add(int stage, Operation *op, Instruction instruction) {
    if (instruction.stream == "compute")
      instruction.after = std::exchange(waitedFor, {});
    all.program.stages[stage].push_back(std::move(instruction));
    all.ops[stage].push_back(op);
    return static_cast<int>(all.ops[stage].size()) - 1;
  }

  /// Adds the pending task, which follows its receives.
  void flush(int stage) {
    if (!pending)
      return;
    if (task)
      add(stage, pending, Instruction::compute(*task));
    pending = {};
  }

  /// A marker begins a task. The receives of the task come next, so it becomes an instruction only after them
  /// (`flush`).
  LogicalResult readStage(int stage) {
    task.reset();
    pending = {};
    waitedFor.clear();
    std::map<Operation *, int> started;
    bool optimizer = false;
    for (Operation &op : all.steps[stage].getBody().front()) {
      if (auto marker = dyn_cast<TaskOp>(op)) {
        flush(stage);
        pending = marker;
        task.reset();
        optimizer = marker.getKind() == TaskKind::Optimizer;
        if (!optimizer)
          task =
              Task{marker.getKind(), static_cast<int>(*marker.getChunk()), static_cast<int>(*marker.getMicrobatch())};
        continue;
      }
      // Sends and receives become parts of instructions; calls and other ops do not.
      if (isa<ReceiveOp, SendOp>(op)) {
        if (!task && !optimizer)
          return op.emitOpError() << "must come after the first pc.task (P2)";
        if (failed(isa<SendOp>(op) ? readSend(stage, cast<SendOp>(op)) : readReceive(stage, cast<ReceiveOp>(op))))
          return failure();
        continue;
      }
      if (auto call = dyn_cast<CallOp>(op)) {
        if (!task || failed(checkFunction(call)))
          return call.emitOpError()
                 << "is outside the tasks, or its function contains an op that tasks may not contain (P2)";
        continue;
      }
      // Leaves, and values computed only from leaves, may be anywhere.
      if (!task && !optimizer && isa<UpdateOp, OutputOp, SeedOp>(op))
        return op.emitOpError() << "must come after the first pc.task (P2)";
      if (auto wait = dyn_cast<WaitOp>(op)) {
        if (auto it = started.find(wait.getStart()); it != started.end())
          waitedFor.push_back(it->second);
        continue;
      }
      MoveOpInterface move;
      if (auto start = dyn_cast<StartOp>(op))
        move = start.getMoves().front();
      else
        move = dyn_cast<MoveOpInterface>(op);
      if (!move || !all.isOverStages(move))
        continue; // within a stage all ranks run the same program, so there is nothing to match
      flush(stage);
      std::string tag = std::string(moveName(move.getMoveKind())) + typeText(op.getOperand(0));
      Instruction call = Instruction::collective(axesText(move), tag);
      // A start does not block its stage, but moves of one group keep their order.
      if (isa<StartOp>(op)) {
        call.stream = call.group;
        if (!all.ops[stage].empty())
          call.after.push_back(static_cast<int>(all.ops[stage].size()) - 1);
      }
      started[&op] = add(stage, &op, std::move(call));
    }
    flush(stage);
    return success();
  }

  /// Functions may only compute, and move values within a stage.
  LogicalResult checkFunction(CallOp call) {
    func::FuncOp function = functions.of(call).function;
    if (!checked.insert(function).second)
      return success();
    return failure(anyOp(function, [&](Operation *op) {
      auto move = dyn_cast<MoveOpInterface>(op);
      return isa<TaskOp, SendOp, ReceiveOp, CallOp, MicrobatchOp, ParameterOp, UpdateOp>(op) ||
             (move && all.isOverStages(move));
    }));
  }

  static std::string typeText(Value value) {
    std::string text = " of ";
    llvm::raw_string_ostream(text) << withEncoding(value.getType(), {});
    return text;
  }

  /// A value that stages exchange after their tasks is identified by the first task of the first chunk of its source
  /// stage.
  Part exchanged(bool send, int source, int destination, int flow) {
    int chunk = static_cast<int>(llvm::find(all.problem.stageOf, source) - all.problem.stageOf.begin());
    chunk = std::min(chunk, all.problem.chunks() - 1);
    return {
        send, {source, destination, TaskKind::Forward, chunk, flow}, {TaskKind::Forward, chunk, 0}, /*input=*/false};
  }

  template <typename Op> LogicalResult addPart(int stage, Op op, Part part) {
    if (static_cast<int64_t>(op.getStage()) >= all.stages() || static_cast<int64_t>(op.getStage()) == stage)
      return op.emitOpError() << "refers to stage " << op.getStage() << " of " << all.stages()
                              << ", which is out of range or its own stage " << stage << " (P3)";
    size_t &expected = positions[{part.flow, part.send}];
    if (op.getMessage() != expected)
      return op.emitOpError() << "is message " << op.getMessage() << " at position " << expected << " of flow "
                              << op.getFlow() << (part.send ? " to" : " from") << " stage " << op.getStage() << " (P3)";
    ++expected;
    (part.send ? sends : receives)[part.flow].push_back(op);
    all.options.buffered = std::min<int>(all.options.buffered, op.getSlots());
    add(stage, op, {Instruction::Transfer, "compute", {}, {part}, "", "", {}});
    return success();
  }

  /// A send outside of tasks belongs to an exchange after them, such as the sum of a shared parameter.
  LogicalResult readSend(int stage, SendOp send) {
    flush(stage);
    int to = static_cast<int>(send.getStage()), flow = static_cast<int>(send.getFlow());
    if (!task)
      return addPart(stage, send, exchanged(true, stage, to, flow));
    return addPart(stage, send, {true, {stage, to, task->kind, task->chunk, flow}, *task});
  }

  /// A receive of a task gets a value that the neighbouring chunk's task of the same kind sends. It comes before the
  /// task's sends.
  LogicalResult readReceive(int stage, ReceiveOp receive) {
    int from = static_cast<int>(receive.getStage()), flow = static_cast<int>(receive.getFlow());
    if (!task)
      return addPart(stage, receive, exchanged(false, from, stage, flow));
    if (!pending)
      return receive.emitOpError() << "must come before the sends of its task (P3)";
    Task message = *task;
    message.chunk += task->kind == TaskKind::Forward ? -1 : 1;
    bool exists = (task->kind == TaskKind::Forward || task->kind == TaskKind::Backward) && message.chunk >= 0 &&
                  message.chunk < all.problem.chunks();
    if (!exists)
      return receive.emitOpError() << "is in " << text(*task) << ", which receives nothing (P3)";
    return addPart(stage, receive, {false, {from, stage, message.kind, message.chunk, flow}, message});
  }

  /// If all parameters of a chunk and all values that it reads are frozen, the next chunk computes no gradient for it,
  /// and no message is sent.
  void findGradients() {
    Problem &p = all.problem;
    p.noGradientFrom.assign(p.chunks(), true);
    for (const auto *ends : {&sends, &receives})
      for (auto &[flow, list] : *ends)
        if (flow.kind == TaskKind::Backward && flow.chunk > 0)
          p.noGradientFrom[flow.chunk - 1] = false;
    for (int c = 0; c + 1 < p.chunks(); ++c)
      if (p.stageOf[c] == p.stageOf[c + 1])
        p.noGradientFrom[c] = false;
  }

  /// Checks that the two ends of a message agree in type and in the slots of their flow.
  LogicalResult checkEnds() {
    for (auto &[flow, list] : sends)
      for (auto [a, b] : llvm::zip(list, receives[flow])) {
        auto send = cast<SendOp>(a);
        auto receive = cast<ReceiveOp>(b);
        if (withEncoding(send.getX().getType(), placement(send.getX())) !=
                withEncoding(receive.getValue().getType(), placement(receive.getValue())) ||
            send.getSlots() != receive.getSlots()) {
          InFlightDiagnostic error = receive.emitOpError() << "receives " << receive.getValue().getType() << " into "
                                                           << receive.getSlots() << " slots (P3)";
          error.attachNote(send.getLoc())
              << "sent: " << send.getX().getType() << " into " << send.getSlots() << " slots";
          return error;
        }
      }
    return success();
  }

  ModuleOp module;
  StagePrograms &all;
  TaskFunctions functions;
  llvm::DenseSet<Operation *> checked; ///< functions
  std::optional<Task> task;
  TaskOp pending;             ///< the task whose ops have not begun
  std::vector<int> waitedFor; ///< instructions that come before the next one of the compute stream
  std::map<std::pair<Flow, bool>, size_t> positions;
  std::map<Flow, std::vector<Operation *>> sends, receives;
};

} // namespace

FailureOr<StagePrograms> StagePrograms::read(ModuleOp module) {
  StagePrograms all;
  all.options.slots = 0; // received messages are copied
  all.options.buffered = 1 << 20;
  if (failed(StageReader(module, all).run()))
    return failure();
  return all;
}
