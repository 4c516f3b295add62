//===- StageGeneration.cpp - The stages of a step that generates --------------------------===//
// A step that generates has no backward pass, and no loop over microbatches: a run calls it for one group of slots
// after another. Each stage computes its units for the tokens that are fed back, which are microbatch 0, and then for
// prompts, which are microbatch 1. Caches are on the stage of their attention.
//===-----------------------------------------------------------------------------===//
#include "StageGeneration.h"

#include "ChooseSchedule.h"
#include "StageWriter.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Generation.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

bool pc::pipeline::generates(func::FuncOp step) {
  return llvm::any_of(step.getOps<StateOp>(), [](StateOp state) { return state.getCache(); });
}

namespace {

bool isLeaf(Operation *op) { return op->getNumOperands() == 0 && op->getNumResults() == 1; }

/// Cuts the ops of a step into stages. `write` comes after `cut`.
class GenerationCut {
public:
  GenerationCut(ModuleOp module, func::FuncOp step, StringAttr axis)
      : module(module), step(step), axis(axis), mesh(meshOf(module)), stages(static_cast<int>(mesh.size(axis))) {}

  /// Finds the stage of every op. Fails after an error, or with `error`.
  LogicalResult cut(StringRef howToCut, const MachineModel &machine, double memory, std::string &error) {
    findParts();
    SmallVector<int> stageOf, chunkOf;
    for (int stage = 0; stage < stages; ++stage)
      stageOf.push_back(stage);
    for (auto &ops : parts) {
      if (ops.empty())
        continue;
      FailureOr<Units> units = Units::find(ops, mesh, machine);
      if (failed(units))
        return failure();
      // Both parts have the same layers, and one cut.
      if (chunkOf.empty()) {
        auto cut = cutUnits(*units, stageOf, howToCut, {memory, {}}, error);
        if (!cut)
          return failure();
        chunkOf = *cut;
      }
      for (Operation *op : ops) {
        // An op without results is where its operand is.
        Operation *from = op->getNumResults() ? op : op->getOperand(0).getDefiningOp();
        at[op] = from == op ? chunkOf[units->unit[op]] : at.lookup(from);
      }
    }
    return findHandedOn();
  }

  void write() {
    numberParameters(step);
    for (int stage = 0; stage < stages; ++stage)
      writeStage(stage);
    keepStages(module, axis);
  }

private:
  /// For each part, finds the ops that are cut, and the ops that every stage repeats: leaves, and values that are cheap
  /// to compute from leaves. A row of a parameter is computed on the stage of the parameter. An op that depends on no
  /// input belongs to the part that reads it.
  void findParts() {
    llvm::DenseSet<Operation *> readParameters, readInputs, ofPrompts;
    Block &body = step.getBody().front();
    for (Operation &op : body.without_terminator()) {
      auto any = [&](const llvm::DenseSet<Operation *> &set) {
        return llvm::any_of(op.getOperands(), [&](Value value) { return set.contains(value.getDefiningOp()); });
      };
      auto input = dyn_cast<InputOp>(op);
      if (isa<ParameterOp>(op) || any(readParameters))
        readParameters.insert(&op);
      if (input || any(readInputs))
        readInputs.insert(&op);
      if ((input && input.getName() && input.getName()->ends_with(".chunk")) || any(ofPrompts))
        ofPrompts.insert(&op);
      bool ofLeaves = llvm::all_of(op.getOperands(), [&](Value value) { return isRepeated(value.getDefiningOp()); });
      if (isLeaf(&op) || (ofLeaves && op.getNumResults() == 1 && flopsOf(&op) == 0 &&
                          !(isa<EmbeddingOp>(op) && readParameters.contains(&op))))
        repeated.insert(&op);
    }
    for (Operation &op : llvm::reverse(body.without_terminator())) {
      if (!readInputs.contains(&op) && !op.use_empty() &&
          llvm::all_of(op.getUsers(), [&](Operation *user) { return ofPrompts.contains(user); }))
        ofPrompts.insert(&op);
      if (!isRepeated(&op))
        parts[ofPrompts.contains(&op)].push_back(&op);
    }
    for (auto &ops : parts)
      std::reverse(ops.begin(), ops.end());
  }
  bool isRepeated(Operation *op) const { return repeated.contains(op); }

  /// A value passes from stage to stage until its last reader has it.
  LogicalResult findHandedOn() {
    handed.assign(2, std::vector<SmallVector<Value>>(stages));
    for (auto [part, ops] : llvm::enumerate(parts))
      for (Operation *op : ops)
        for (Value value : op->getResults()) {
          int last = at[op];
          for (Operation *user : value.getUsers()) {
            if (isRepeated(user) || !at.contains(user))
              continue;
            if (at[user] < at[op])
              return user->emitOpError() << "of stage " << at[user] << " needs a value of stage " << at[op]
                                         << ", so the model cannot be cut into stages here";
            last = std::max(last, at[user]);
          }
          for (int stage = at[op]; stage < last; ++stage)
            handed[part][stage].push_back(value);
        }
    return success();
  }

  /// Writes the program of one stage: for each part of the step, a task that receives values from the previous stage,
  /// runs the stage's ops, and sends values to the next one. Ops that read only leaves are cloned into every stage that
  /// needs them.
  void writeStage(int number) {
    constexpr int slots = 2; // a stage is at most one step ahead of the next one while it computes
    StageModule stage(module, step, number, slots);
    IRMapping values;
    OpBuilder &builder = stage.builder;
    std::function<void(Value)> find = [&](Value value) {
      if (values.contains(value))
        return;
      Operation *op = value.getDefiningOp();
      if (isLeaf(op)) {
        values.map(value, stage.outside(value));
        return;
      }
      llvm::for_each(op->getOperands(), find);
      builder.clone(*op, values);
    };
    for (auto [part, ops] : llvm::enumerate(parts)) {
      if (ops.empty())
        continue;
      TaskOp::create(builder, step.getLoc(), TaskKind::Forward, builder.getI64IntegerAttr(number),
                     builder.getI64IntegerAttr(static_cast<int64_t>(part)));
      auto flowOf = [&, part = part](int from, size_t index) {
        return flows.of(from, from + 1, letterOf(TaskKind::Forward), static_cast<int>(part), static_cast<int>(index));
      };
      if (number > 0)
        for (auto [i, value] : llvm::enumerate(handed[part][number - 1]))
          values.map(value, stage.receive(value.getLoc(), value.getType(), number - 1, flowOf(number - 1, i), 0));
      for (Operation *op : ops)
        if (at[op] == number) {
          llvm::for_each(op->getOperands(), find);
          builder.clone(*op, values);
        }
      for (auto [i, value] : llvm::enumerate(handed[part][number]))
        stage.send(value.getLoc(), values.lookup(value), number + 1, flowOf(number, i), 0);
    }
    stage.finish();
  }

  ModuleOp module;
  func::FuncOp step;
  StringAttr axis;
  MeshAttr mesh;
  int stages;
  std::array<SmallVector<Operation *>, 2> parts; ///< tokens that are fed back, and prompts
  llvm::DenseSet<Operation *> repeated;
  llvm::DenseMap<Operation *, int> at;                 ///< the stage of every op that is cut
  std::vector<std::vector<SmallVector<Value>>> handed; ///< values for the next stage, by part and stage
  FlowNumbers flows;
};

} // namespace

LogicalResult pc::pipeline::stageGeneration(ModuleOp module, func::FuncOp step, StringAttr axis, StringRef howToCut,
                                            const MachineModel &machine, double memory, std::string &error) {
  GenerationCut cut(module, step, axis);
  if (failed(cut.cut(howToCut, machine, memory, error)))
    return failure();
  cut.write();
  return success();
}
