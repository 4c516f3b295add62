//===- UpdateWriter.cpp - Writes the ops after the accumulation into stages ----------------===//
// Walks once over the ops after the accumulation, for all stages at the same time. A value that depends on the
// accumulation exists on some stages: either each of them has the whole value, or each has one addend of it. Linear ops
// work on addends; other ops need the total. A stack of the matrices of all stages becomes one stack per stage, which
// has the matrices of that stage.
//===-----------------------------------------------------------------------------===//
#include "StageWriter.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

/// Walks once over the ops of the step after its accumulation and writes each on the stages that have its operands.
/// `values` has, for each value, the stages on which it exists, and whether they hold addends of a sum.
class UpdateWriter {
public:
  UpdateWriter(MutableArrayRef<StageWriter> stages, StageWriter::Step &step, StringAttr axis)
      : stages(stages), step(step), axis(axis) {}

  /// Writes each op that follows the accumulation to the stages that have its operands. Sums over stages that the op
  /// needs are written before it.
  LogicalResult run() {
    findStacks();
    for (Value result : step.accumulate.getResults()) {
      Parts &parts = values[result];
      for (StageWriter &stage : stages)
        parts.on.push_back(stage.sum(cast<OpResult>(result).getResultNumber()));
      parts.isSum = parts.count() > 1;
      parts.gradient = cast<OpResult>(result).getResultNumber();
    }
    for (Operation *op = step.accumulate->getNextNode(); op != step.function.getBody().front().getTerminator();
         op = op->getNextNode()) {
      bool depends =
          llvm::any_of(op->getOperands(), [&](Value value) { return values.count(value) || entries.count(value); });
      isWritten = false;
      if (auto output = dyn_cast<OutputOp>(op); depends && output && output.getKind() == OutputKind::Gradient)
        for (Value part : values[output.getValue()].on)
          trainers[output.getName()].push_back(bool(part));
      if (depends)
        write(op);
      if (isa<UpdateOp, OutputOp>(op) && !isWritten)
        return op->emitOpError() << "of " << sourceName(op)
                                 << " cannot be computed on any one stage, because it depends on "
                                 << (depends ? "parameters of several stages"
                                             : "no value that the microbatches compute");
    }
    return success();
  }

private:
  /// A value of the step on the stages.
  struct Parts {
    SmallVector<Value> on; ///< one per stage; null if the stage does not have it
    bool isSum = false;    ///< the value is the sum of these
    int gradient = -1;     ///< the result of the accumulation that this is, apart from moves and casts

    int count() const {
      return static_cast<int>(llvm::count_if(on, [](Value v) { return bool(v); }));
    }
  };

  static bool isLinear(Operation *op) { return isa<MoveOpInterface, CopyOp, CastOp, ScaleOp>(op); }
  /// Returns true for outputs that all stages get.
  static bool isFigure(Operation *op) {
    auto output = dyn_cast<OutputOp>(op);
    return output && (output.getKind() == OutputKind::Loss || output.getKind() == OutputKind::GradNorm);
  }

  /// Linear ops continue with addends; others need the whole value, so sums are first exchanged or reduced over stages.
  void write(Operation *op) {
    if (isLinear(op)) {
      Parts &from = values[op->getOperand(0)];
      bool isSum = from.isSum;
      int gradient = from.gradient;
      cloneWhereKnown(op);
      values[op->getResult(0)].isSum = isSum;
      values[op->getResult(0)].gradient = gradient;
      return;
    }
    if (isa<AddOp>(op) && values.count(op->getOperand(0)) && values.count(op->getOperand(1)) &&
        !entries.count(op->getResult(0)))
      return add(op);
    for (Value operand : op->getOperands())
      if (auto it = values.find(operand); it != values.end()) {
        bool everywhere = it->second.count() == static_cast<int>(stages.size());
        if (it->second.gradient > 0 && it->second.isSum)
          exchange(operand.getLoc(), it->second);
        else if (it->second.isSum || (isFigure(op) && !everywhere))
          reduce(operand.getLoc(), operand.getType(), it->second);
      }
    if (isa<StackOp>(op))
      return; // written where it is read
    // If several stages have a gradient, one of them shows it and counts its square.
    bool isSquare = isa<EinsumOp>(op) && llvm::all_of(op->getOperands(), [&](Value operand) {
                      auto it = values.find(operand);
                      return it != values.end() && it->second.gradient > 0;
                    });
    cloneWhereKnown(op, /*once=*/isSquare || (isa<OutputOp>(op) && !isFigure(op)));
  }

  /// Returns true if stage `s` may compute a value that does not depend on the accumulation. A stage has the states of
  /// the parameters of which it has a gradient.
  bool isOn(Value outside, size_t s) {
    Operation *op = outside.getDefiningOp();
    if (!op)
      return true;
    if (auto state = dyn_cast<StateOp>(op)) {
      auto known = trainers.find(state.getParameter());
      return known == trainers.end() || known->second[s];
    }
    if (auto known = outsideOn.find(op); known != outsideOn.end())
      return known->second[s];
    llvm::BitVector on(stages.size(), true);
    for (Value operand : op->getOperands())
      for (size_t stage = 0; stage < stages.size(); ++stage)
        if (!isOn(operand, stage))
          on.reset(stage);
    outsideOn[op] = on;
    return on[s];
  }

  /// Whether stage `s` has the value.
  bool has(Value value, size_t s) {
    auto it = values.find(value);
    return it == values.end() ? isOn(value, s) : bool(it->second.on[s]);
  }

  /// Finds the values that are computed from stacks, and into how many parts axes divide their entries.
  void findStacks() {
    MeshAttr mesh = meshOf(step.module);
    for (Operation *op = step.accumulate->getNextNode(); op; op = op->getNextNode()) {
      int64_t size = 0;
      for (Value operand : op->getOperands())
        if (entries.count(operand))
          size = cast<RankedTensorType>(operand.getType()).getDimSize(0);
      for (Value result : op->getResults()) {
        ArrayRef<int64_t> shape = cast<RankedTensorType>(result.getType()).getShape();
        if (!isa<StackOp>(op) && (isa<UnstackOp>(op) || !size || shape.empty() || shape[0] != size))
          continue;
        entries[result].resize(stages.size());
        owners = std::lcm(owners, mesh.size(placement(result).axes(0)));
      }
    }
  }

  /// The entries that stage `s` has of all stacks that the op reads.
  SmallVector<int64_t> entriesOf(Operation *op, size_t s) {
    std::map<int64_t, size_t> found;
    size_t operands = 0;
    for (Value operand : op->getOperands()) {
      if (auto stack = operand.getDefiningOp<StackOp>())
        for (auto [entry, value] : llvm::enumerate(stack.getInputs()))
          found[static_cast<int64_t>(entry)] += has(value, s);
      else if (auto known = entries.find(operand); known != entries.end())
        for (int64_t entry : known->second[s])
          ++found[entry];
      else
        continue;
      ++operands;
    }
    SmallVector<int64_t> all;
    for (auto [entry, times] : found)
      if (times == operands)
        all.push_back(entry);
    return all;
  }

  /// The type of a stack, or of a value computed from a stack, on a stage that has `count` entries.
  Type stackType(Value value, size_t count) const {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = static_cast<int64_t>(llvm::alignTo(count, owners));
    return type.clone(shape);
  }

  /// Returns the operand on stage `s`, which must have it. `own` are the entries of stacks that the reader needs.
  Value get(Value operand, size_t s, ArrayRef<int64_t> own) {
    auto it = values.find(operand);
    auto stack = operand.getDefiningOp<StackOp>();
    if (!stack)
      return it == values.end() ? stages[s].outside(operand) : it->second.on[s];
    Value &known = written[{stack, s, own.vec()}];
    if (!known) {
      auto inputs = llvm::map_to_vector(own, [&](int64_t entry) { return get(stack.getInputs()[entry], s, {}); });
      known = StackOp::create(stages[s].builder, stack.getLoc(), stackType(operand, own.size()), inputs);
    }
    return known;
  }

  /// Clones the op into every stage that has all its operands, or only into the first one.
  void cloneWhereKnown(Operation *op, bool once = false) {
    SmallVector<SmallVector<Value>> results(op->getNumResults(), SmallVector<Value>(stages.size()));
    auto unstack = dyn_cast<UnstackOp>(op);
    for (auto [s, stage] : llvm::enumerate(stages)) {
      // The entries of a stack that this stage has. A stage without all entries gets a smaller stack.
      SmallVector<int64_t> own = entriesOf(op, s);
      auto isThere = [&, s = s](Value operand) {
        if (operand.getDefiningOp<StackOp>())
          return !own.empty();
        auto known = entries.find(operand);
        return has(operand, s) && (known == entries.end() || known->second[s] == own);
      };
      auto at = unstack ? llvm::find(own, static_cast<int64_t>(unstack.getIndex())) : own.begin();
      if (!llvm::all_of(op->getOperands(), isThere) || (unstack && at == own.end()))
        continue;
      IRMapping mapping;
      for (Value operand : op->getOperands())
        mapping.map(operand, get(operand, s, own));
      Operation *clone = stage.builder.clone(*op, mapping);
      isWritten = true;
      if (unstack)
        cast<UnstackOp>(clone).setIndex(at - own.begin());
      for (auto [result, copy] : llvm::zip_equal(op->getResults(), clone->getResults()))
        if (auto known = entries.find(result); known != entries.end()) {
          known->second[s] = own;
          copy.setType(stackType(result, own.size()));
        }
      for (auto [r, result] : llvm::enumerate(clone->getResults()))
        results[r][s] = result;
      if (once)
        break;
    }
    for (auto [r, result] : llvm::enumerate(op->getResults()))
      values[result].on = results[r];
  }

  /// Every stage adds the operands that it has; if one is missing on some stages, the result is a sum over stages.
  void add(Operation *op) {
    Parts a = values[op->getOperand(0)], b = values[op->getOperand(1)], sum;
    for (auto [s, stage] : llvm::enumerate(stages)) {
      Value x = a.on[s], y = b.on[s];
      sum.isSum |= !x != !y;
      if (x && y)
        x = AddOp::create(stage.builder, op->getLoc(), op->getResult(0).getType(), x, y);
      sum.on.push_back(x ? x : y);
    }
    sum.isSum |= a.isSum || b.isSum;
    values[op->getResult(0)] = sum;
  }

  /// Every stage that has an addend gets the sum. Each adds the addends in the order of stages.
  void exchange(Location loc, Parts &parts) {
    SmallVector<Value> whole(stages.size());
    auto flow = [&](int from, int to) { return step.flows.of(from, to, 'T', parts.gradient, 0); };
    for (StageWriter &to : stages)
      for (StageWriter &from : stages)
        if (Value own = parts.on[from.stage()]; own && parts.on[to.stage()] && from.stage() != to.stage())
          from.send(loc, own, to.stage(), flow(from.stage(), to.stage()), 0);
    for (StageWriter &to : stages)
      for (StageWriter &from : stages) {
        Value own = parts.on[to.stage()], part = own;
        if (!own || !parts.on[from.stage()])
          continue;
        if (from.stage() != to.stage())
          part = to.receive(loc, own.getType(), from.stage(), flow(from.stage(), to.stage()), 0);
        Value &sum = whole[to.stage()];
        sum = sum ? AddOp::create(to.builder, loc, own.getType(), sum, part).getResult() : part;
      }
    parts.on = whole;
    parts.isSum = false;
  }

  /// All stages get the sum of the existing addends.
  void reduce(Location loc, Type type, Parts &parts) {
    PlaceAttr place = placement(type).with(axis, AxisState::sum());
    ArrayAttr axes = ArrayAttr::get(axis.getContext(), {axis});
    for (auto [s, stage] : llvm::enumerate(stages)) {
      OpBuilder &builder = stage.builder;
      Value own =
          parts.on[s] ? parts.on[s] : ConstantOp::create(builder, loc, type, builder.getF64FloatAttr(0)).getResult();
      Value addend = AddendOp::create(builder, loc, withEncoding(type, place), own, axes);
      parts.on[s] = AllReduceOp::create(builder, loc, type, PartialKind::Sum, addend, axes, WireAttr());
    }
    parts.isSum = false;
    parts.gradient = -1;
  }

  MutableArrayRef<StageWriter> stages;
  StageWriter::Step &step;
  StringAttr axis;
  llvm::DenseMap<Value, Parts> values;
  /// For each stack and each value computed from a stack, its entries on each stage.
  llvm::DenseMap<Value, SmallVector<SmallVector<int64_t>>> entries;
  std::map<std::tuple<Operation *, size_t, std::vector<int64_t>>, Value> written; ///< stacks of a stage, by entries
  int64_t owners = 1;                                     ///< the entries of a stack are a multiple of this
  llvm::StringMap<SmallVector<bool>> trainers;            ///< for each parameter, the stages that have a gradient
  llvm::DenseMap<Operation *, llvm::BitVector> outsideOn; ///< which stages may compute other values
  bool isWritten = false;                                 ///< whether the current op was written on some stage
};

} // namespace

LogicalResult pc::pipeline::writeUpdates(MutableArrayRef<StageWriter> stages, StageWriter::Step &step,
                                         StringAttr axis) {
  return UpdateWriter(stages, step, axis).run();
}
