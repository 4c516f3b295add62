//===- Interpreter.cpp - Runs programs of every phase ------------------------------------===//
// A `Machine` runs one function on all ranks in lock step. A placed program runs twice: erased on one device, which
// leaves a trace of all values, then on the ranks, whose values are compared with the trace.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Interpreter.h"

#include "pc/Reference/Evaluate.h"
#include "pc/Reference/Feeds.h"
#include "pc/Reference/Ranks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace pc;

namespace {

class Machine {
public:
  /// With `erased`, moves and placements are ignored, as on one device.
  Machine(func::FuncOp function, const RunOptions &options, const Feeds &feeds, Ranks ranks, bool erased)
      : function(function), options(options), feeds(feeds), ranks(ranks), erased(erased) {}

  std::vector<Tensor> *record = nullptr;         ///< where to leave the trace
  const std::vector<Tensor> *expected = nullptr; ///< what to compare with

  LogicalResult run() { return runBlock(function.getBody().front()); }
  Results takeResults() { return std::move(results); }

private:
  LogicalResult runBlock(Block &block) {
    for (Operation &op : block)
      if (!op.hasTrait<OpTrait::IsTerminator>() && failed(runOp(&op)))
        return failure();
    return success();
  }

  LogicalResult runOp(Operation *op) {
    LogicalResult done = llvm::TypeSwitch<Operation *, LogicalResult>(op)
                             .Case([&](AccumulateOp accumulate) { return runAccumulate(accumulate); })
                             .Case([&](FusionOp fusion) { return runFusion(fusion); })
                             .Case([&](UpdateOp update) { return runUpdate(update); })
                             .Case([&](OutputOp output) { return runOutput(output); })
                             .Case([&](BlockOffsetOp offset) {
                               RankTensors &tensors = values[offset.getValue()] = RankTensors(ranks.count());
                               for (auto [rank, tensor] : llvm::enumerate(tensors))
                                 tensor[0] = ranks.index(rank, axisList(offset.getAxes())) * offset.getBlock();
                               return success();
                             })
                             .Case([&](MoveOpInterface move) {
                               const RankTensors &from = values[move->getOperand(0)];
                               RankTensors to = erased ? from : ranks.apply(move, from);
                               values[move->getResult(0)] = std::move(to);
                               return success();
                             })
                             .Case<ParameterOp, StateOp, InputOp, RopeTableOp, ConstantOp, SeedOp>(
                                 [&](auto leaf) { return runLeaf(leaf); })
                             .Default([&](Operation *other) { return compute(other); });
    if (failed(done))
      return failure();
    for (Value result : op->getResults())
      if (failed(check(op, result)))
        return failure();
    return success();
  }

  LogicalResult runLeaf(Operation *leaf) {
    FailureOr<Tensor> global = feeds.read(leaf);
    if (failed(global))
      return failure();
    if (options.feed)
      options.feed(leaf, *global);
    values[leaf->getResult(0)] = ranks.split(*global, layoutOf(leaf, leaf->getResult(0)).place);
    return success();
  }

  /// An op that every rank computes from its own tensors.
  LogicalResult compute(Operation *op) {
    EvaluateContext context;
    for (Type type : op->getResultTypes())
      context.shapes.push_back(localShape(type));
    SmallVector<RankTensors> outs(op->getNumResults());
    for (int64_t rank = 0; rank < ranks.count(); ++rank) {
      SmallVector<const Tensor *> in;
      for (Value operand : op->getOperands())
        in.push_back(&values[operand][rank]);
      context.offset = offsetOf(op, rank);
      auto tensors = evaluate(op, in, context);
      if (failed(tensors))
        return failure();
      for (auto [i, tensor] : llvm::enumerate(*tensors)) {
        if (tensor.shape != context.shapes[i])
          return op->emitOpError() << "result " << i << " has another shape on rank " << rank << " than its type says";
        outs[i].push_back(std::move(tensor));
      }
    }
    for (auto [result, tensors] : llvm::zip_equal(op->getResults(), outs))
      values[result] = std::move(tensors);
    return success();
  }

  /// The first global index of the block that `op` indexes: its operand in local programs, by the placement in placed
  /// ones.
  int64_t offsetOf(Operation *op, int64_t rank) {
    auto offset = [&](Value operand, Value indexed, int64_t dim) -> int64_t {
      if (operand)
        return values[operand][rank][0];
      PlaceAttr place = erased ? PlaceAttr() : placement(indexed);
      ArrayRef<int64_t> shape = cast<RankedTensorType>(indexed.getType()).getShape();
      return ranks.blockStart(rank, shape, place)[dim < 0 ? dim + shape.size() : dim];
    };
    return llvm::TypeSwitch<Operation *, int64_t>(op)
        .Case([&](IotaOp iota) { return offset(iota.getOffset(), iota.getValue(), 0); })
        .Case([&](EmbeddingOp e) { return offset(e.getOffset(), e.getTable(), 0); })
        .Case([&](EmbeddingGradOp e) { return offset(e.getOffset(), e.getResult(), 0); })
        .Case([&](PickOp pick) { return offset(pick.getOffset(), pick.getLogits(), -1); })
        .Case([&](CrossEntropyGradOp e) { return offset(e.getOffset(), e.getLogits(), -1); })
        .Case([&](MaskPaddingOp mask) { return offset(mask.getOffset(), mask.getX(), -1); })
        .Default([](Operation *) { return 0; });
  }

  LogicalResult runAccumulate(AccumulateOp accumulate) {
    SmallVector<RankTensors> sums(accumulate->getNumResults());
    for (int64_t m = 0; m < accumulate.getMicrobatches(); ++m) {
      for (auto [argument, input] : llvm::zip_equal(accumulate.getBody().getArguments(), accumulate.getInputs())) {
        RankTensors elements;
        for (const Tensor &stack : values[input]) {
          Shape start(stack.rank(), 0), sizes = stack.shape;
          start[0] = m;
          sizes[0] = 1;
          elements.push_back(stack.box(start, sizes));
          elements.back().shape.erase(elements.back().shape.begin());
        }
        values[argument] = std::move(elements);
      }
      Block &body = accumulate.getBody().front();
      if (failed(runBlock(body)))
        return failure();
      for (auto [sum, value] : llvm::zip_equal(sums, body.getTerminator()->getOperands())) {
        const RankTensors &addends = values[value];
        if (m == 0) {
          sum = addends;
          continue;
        }
        for (auto [s, addend] : llvm::zip_equal(sum, addends))
          for (int64_t i = 0; i < s.size(); ++i)
            s[i] += addend[i];
      }
    }
    for (auto [result, sum] : llvm::zip_equal(accumulate.getResults(), sums))
      values[result] = std::move(sum);
    return success();
  }

  LogicalResult runFusion(FusionOp fusion) {
    for (auto [argument, input] : llvm::zip_equal(fusion.getBody().getArguments(), fusion.getInputs())) {
      RankTensors tensors = values[input];
      values[argument] = std::move(tensors);
    }
    Block &body = fusion.getBody().front();
    if (failed(runBlock(body)))
      return failure();
    for (auto [result, value] : llvm::zip_equal(fusion.getResults(), body.getTerminator()->getOperands())) {
      RankTensors tensors = values[value];
      values[result] = std::move(tensors);
    }
    return success();
  }

  LogicalResult runUpdate(UpdateOp update) {
    StringRef parameter = update.getParameter().value_or(update.getName());
    std::string name = ("update " + update.getName()).str();
    if (update.getParameter())
      name += (" of " + *update.getParameter()).str();
    // In local programs only the leaf knows where the value lies.
    Operation *leaf = nullptr;
    function.walk([&](Operation *op) {
      if (auto p = dyn_cast<ParameterOp>(op); p && !update.getParameter() && p.getName() == update.getName())
        leaf = op;
      if (auto s = dyn_cast<StateOp>(op);
          s && update.getParameter() && s.getName() == update.getName() && s.getParameter() == *update.getParameter())
        leaf = op;
    });
    if (!leaf)
      return update.emitOpError() << "sets '" << update.getName()
                                  << "', which is no parameter or state of this program";
    return collect(update, update.getValue(), layoutOf(leaf, leaf->getResult(0)), name, feeds.validShape(parameter));
  }

  LogicalResult runOutput(OutputOp output) {
    std::string name = (stringifyOutputKind(output.getKind()) + " " + output.getName()).str();
    Shape valid(output.getValid().value_or(ArrayRef<int64_t>()));
    return collect(output, output.getValue(), layoutOf(output, output.getValue()), name,
                   output.getValid() ? &valid : nullptr);
  }

  /// Adds a value, put together and without padding, to the results.
  LogicalResult collect(Operation *op, Value value, const LeafLayout &layout, const std::string &name,
                        const Shape *valid) {
    double disagreement = 0;
    const RankTensors &parts = values[value];
    if (parts[0].shape != ranks.localShape(layout.global, layout.place))
      return op->emitOpError() << "value does not have the shape of a rank's block of " << name;
    Tensor whole = ranks.assemble(parts, layout.global, layout.place, disagreement);
    if (disagreement > options.tolerance)
      return op->emitOpError() << "ranks disagree about " << name << ": relative difference "
                               << llvm::formatv("{0:e}", disagreement).str();
    if (valid)
      whole = whole.box(Shape(valid->size(), 0), *valid);
    Tensor *before = find(results, name);
    if (!before) {
      results.push_back({name, std::move(whole)});
      return success();
    }
    auto output = dyn_cast<OutputOp>(op); // seen once per microbatch
    if (!output || !isa<AccumulateOp>(op->getParentOp()))
      return op->emitOpError() << "gives '" << name << "' a second time";
    Tensor &seen = *before;
    if (output.getKind() == OutputKind::Logits) {
      seen.data.insert(seen.data.end(), whole.data.begin(), whole.data.end());
      seen.shape[0] += whole.shape[0];
    } else {
      for (int64_t i = 0; i < seen.size(); ++i)
        seen[i] += whole[i];
    }
    return success();
  }

  /// Compares `value`, put together from the ranks, with the trace of one device.
  LogicalResult check(Operation *op, Value value) {
    if (record)
      record->push_back(values[value][0]);
    if (options.observe && ranks.count() == 1 && (record || !expected))
      options.observe(value, values[value][0]);
    if (!expected)
      return success();
    const Tensor &whole = (*expected)[next++];
    double disagreement = 0;
    Tensor found = ranks.assemble(values[value], whole.shape, placement(value), disagreement);
    double difference = largestDifference(whole, found);
    if (disagreement > options.tolerance)
      return op->emitOpError() << "ranks disagree about a value that they should share: relative difference "
                               << llvm::formatv("{0:e}", disagreement).str() << ", type " << value.getType();
    if (difference > options.tolerance)
      return op->emitOpError() << "differs on " << ranks.count() << " ranks from one device: relative difference "
                               << llvm::formatv("{0:e}", difference).str() << ", type " << value.getType();
    return success();
  }

  LeafLayout layoutOf(Operation *op, Value value) const {
    LeafLayout layout = leafLayout(op, value);
    if (erased)
      layout.place = {};
    return layout;
  }

  Shape localShape(Type type) const {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
    return erased ? Shape(shape) : ranks.localShape(shape, placement(type));
  }

  func::FuncOp function;
  const RunOptions &options;
  const Feeds &feeds;
  Ranks ranks;
  bool erased;
  llvm::DenseMap<Value, RankTensors> values;
  Results results;
  size_t next = 0; ///< in `expected`
};

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

Tensor *pc::find(Results &results, StringRef name) {
  auto it = llvm::find_if(results, [&](const NamedTensor &result) { return result.name == name; });
  return it == results.end() ? nullptr : &it->value;
}

FailureOr<Results> pc::interpret(ModuleOp module, const RunOptions &options) {
  func::FuncOp function = programOf(module);
  if (!function)
    return module.emitError() << "nothing to interpret: expected @step, @model or a single function";
  if (!function.getBody().hasOneBlock() || function.getNumArguments())
    return function.emitError() << "the interpreter runs functions of one block without arguments";
  Feeds feeds(function, options.seed);
  Ranks ranks(meshOf(module));
  std::vector<Tensor> trace;
  bool placed = isPlaced(function);
  if (placed) {
    Machine device(function, options, feeds, Ranks(MeshAttr()), /*erased=*/true);
    device.record = &trace;
    if (failed(device.run()))
      return failure();
  }
  Machine machine(function, options, feeds, ranks, /*erased=*/false);
  if (placed)
    machine.expected = &trace;
  if (failed(machine.run()))
    return failure();
  return machine.takeResults();
}
