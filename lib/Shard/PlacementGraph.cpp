//===- PlacementGraph.cpp - The nodes and values on which rows are chosen --------------------===//
// Reads a step into nodes and values, the form that the placement engine works on. Moves over axes that are already
// placed are identities here, and so are arguments and yields of the accumulation. Each dim gets the name of the
// leaves' dims with which it shares a factor, so that tactics can find it.
//===-----------------------------------------------------------------------------===//
#include "pc/Shard/PlacementGraph.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/DimClasses.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

/// Other leaves, such as tables, have no names of dims.
ArrayAttr pc::leafDims(Operation *leaf) {
  if (!leaf) // a function's argument
    return {};
  return llvm::TypeSwitch<Operation *, ArrayAttr>(leaf)
      .Case<ParameterOp, StateOp, InputOp>([](auto op) { return op.getDims(); })
      .Default(ArrayAttr());
}

/// Leaves are described by their own names, other ops by kind and source.
std::string pc::describe(Operation *op) {
  auto quoted = [](const llvm::Twine &name) { return ("'" + name + "'").str(); };
  if (auto input = dyn_cast<InputOp>(op))
    return quoted(input.getName().value_or(stringifyInputKind(input.getKind())));
  if (auto state = dyn_cast<StateOp>(op))
    return quoted(state.getName() + " of " + state.getParameter());
  if (auto parameter = dyn_cast<ParameterOp>(op))
    return quoted(parameter.getName());
  std::string kind = quoted(op->getName().getStringRef());
  return op->getLoc()->findInstanceOf<NameLoc>() ? kind + " of " + quoted(sourceName(op)) : kind;
}

/// Follows block arguments of accumulations to the outside, and moves and copies to their operands.
Value pc::origin(Value value) {
  while (true) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto accumulate = dyn_cast<AccumulateOp>(argument.getOwner()->getParentOp());
      if (!accumulate)
        return value;
      value = accumulate.getInputs()[argument.getArgNumber()];
    } else if (isa<MoveOpInterface, CopyOp>(value.getDefiningOp())) {
      value = value.getDefiningOp()->getOperand(0);
    } else {
      return value;
    }
  }
}

/// Looks through casts, resizes and codes, which have the placement of their operand.
Value pc::source(Value value) {
  while (true) {
    value = origin(value);
    Operation *made = value.getDefiningOp();
    if (!roundsOperand(made) && !isa_and_nonnull<ResizeOp, DecodeOp>(made))
      return value;
    value = made->getOperand(0);
  }
}

int64_t PlacementValue::find(StringRef name) const {
  for (auto [d, own] : llvm::enumerate(names))
    if (own && own.getValue() == name)
      return d;
  return -1;
}

namespace {

int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// The rule of an identity from `operand` to `result`; if only the operand has a dim, this is its first one.
FactorRule identity(Value operand, Value result, bool linear, bool maxTransparent) {
  FactorRule rule;
  auto type = cast<RankedTensorType>(operand.getType());
  for (auto [d, size] : llvm::enumerate(type.getShape()))
    rule.factors.push_back({"x" + std::to_string(d), size, false});
  int extra = type.getRank() - rankOf(result);
  auto all = llvm::seq<int>(0, type.getRank());
  rule.operands.emplace_back(all.begin(), all.end());
  rule.results.emplace_back(all.begin() + extra, all.end());
  for (int d = 0; d < extra; ++d)
    rule.factors[d].whole = true;
  if (linear)
    rule.linear.push_back({0});
  rule.maxTransparent = maxTransparent;
  return rule;
}

/// Builds the graph in program order. Every operand must be a value that was read before. Errors are emitted at the op.
class GraphReader {
public:
  LogicalResult read(func::FuncOp function);
  PlacementGraph graph;

private:
  LogicalResult readBlock(Block &block, Section section, int64_t times);
  LogicalResult readAccumulate(AccumulateOp accumulate);
  LogicalResult add(NodeKind kind, Section section, Operation *op, unsigned number, FactorRule &&rule,
                    ValueRange operands, ValueRange results, int64_t times);
  void nameDims(func::FuncOp function);

  llvm::DenseMap<Value, unsigned> indexOf;
};

/// Adds one node with its results as new values. All operands must already be known, which also excludes arguments of
/// functions.
LogicalResult GraphReader::add(NodeKind kind, Section section, Operation *op, unsigned number, FactorRule &&rule,
                               ValueRange operands, ValueRange results, int64_t times) {
  PlacementNode node{kind, section, op, number, std::move(rule), {}, {}};
  unsigned id = graph.nodes.size();
  for (auto [i, operand] : llvm::enumerate(operands)) {
    auto it = indexOf.find(operand);
    if (it == indexOf.end())
      return op->emitError() << "cannot place an operand that is not the result of a pc op of this function";
    node.operands.push_back(it->second);
    graph.values[it->second].readers.push_back({id, i});
  }
  for (auto [i, result] : llvm::enumerate(results)) {
    if (!placement(result))
      return op->emitError() << "tactics need a placed program, so run pc-set-mesh first; '" << sourceName(op)
                             << "' has type " << result.getType();
    indexOf[result] = graph.values.size();
    node.results.push_back(graph.values.size());
    PlacementValue value;
    value.value = result;
    value.producer = id;
    value.result = i;
    value.section = section;
    value.times = times;
    graph.values.push_back(std::move(value));
  }
  graph.nodes.push_back(std::move(node));
  return success();
}

/// Reads the body, and counts it once for each microbatch. Each argument and each sum is a separate node, so that moves
/// can be placed before and after it.
LogicalResult GraphReader::readAccumulate(AccumulateOp accumulate) {
  Block &body = accumulate.getBody().front();
  int64_t times = accumulate.getMicrobatches();
  for (auto [operand, argument] : llvm::zip(accumulate.getInputs(), body.getArguments()))
    if (failed(add(NodeKind::Argument, Section::Forward, accumulate, argument.getArgNumber(),
                   identity(operand, argument, /*linear=*/true, /*maxTransparent=*/false), operand, argument, times)))
      return failure();
  if (failed(readBlock(body, Section::Forward, times)))
    return failure();
  Operation *yield = body.getTerminator();
  for (auto [i, pair] : llvm::enumerate(llvm::zip(yield->getOperands(), accumulate.getResults()))) {
    auto [yielded, result] = pair;
    if (failed(add(NodeKind::Yield, Section::Accumulate, yield, i, identity(yielded, result, true, false), yielded,
                   result, 1)))
      return failure();
  }
  return success();
}

/// Makes one node per op. The section determines which names of dims may be split there.
LogicalResult GraphReader::readBlock(Block &block, Section section, int64_t times) {
  for (Operation &op : block) {
    if (isa<SeedOp>(op))
      section = Section::Backward;
    LogicalResult read =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](AccumulateOp accumulate) -> LogicalResult {
              if (times != 1 || !isa<func::FuncOp>(op.getParentOp()))
                return op.emitError() << "pc.accumulate inside another region cannot be placed";
              section = Section::Optimizer;
              return readAccumulate(accumulate);
            })
            .Case<FactorOpInterface>([&](FactorOpInterface factored) {
              return add(NodeKind::Compute, section, &op, 0, factored.getFactorRule(), op.getOperands(),
                         op.getResults(), times);
            })
            .Case<MoveOpInterface>([&](MoveOpInterface move) {
              bool max = move.getReduction() == PartialKind::Max;
              // If a move changes only between whole and split, a value that is a partial maximum on another axis stays
              // one.
              const pcrt_move_facts &facts = factsOf(move.getMoveKind());
              auto isThere = [](pcrt_move_state s) { return s == PCRT_STATE_WHOLE || s == PCRT_STATE_SPLIT; };
              bool passesMax = max || (isThere(facts.needs) && isThere(facts.makes));
              return add(NodeKind::Move, section, &op, 0, identity(op.getOperand(0), op.getResult(0), !max, passesMax),
                         op.getOperands(), op.getResults(), times);
            })
            .Case<ParameterOp, StateOp, InputOp, ConstantOp, SeedOp>(
                [&](auto) { return add(NodeKind::Leaf, section, &op, 0, {}, {}, op.getResults(), times); })
            .Case([&](UpdateOp) { return add(NodeKind::Update, section, &op, 0, {}, op.getOperands(), {}, times); })
            .Case([&](OutputOp) { return add(NodeKind::Output, section, &op, 0, {}, op.getOperands(), {}, times); })
            .Case<YieldOp>([](auto) { return success(); })
            .Default([](Operation *other) -> LogicalResult {
              if (other->getNumOperands() == 0 && other->getNumResults() == 0 && other->getNumRegions() == 0)
                return success();
              return other->emitError() << "'" << other->getName() << "' cannot be placed";
            });
    if (failed(read))
      return failure();
  }
  return success();
}

/// Leaves name their dims. Every other dim gets the name of the leaves' dims that it shares a factor with, through any
/// number of ops.
void GraphReader::nameDims(func::FuncOp function) {
  DimClasses classes(function);
  llvm::DenseMap<unsigned, StringAttr> nameOf;
  for (PlacementValue &v : graph.values)
    if (ArrayAttr dims = leafDims(v.value.getDefiningOp()))
      for (auto [d, name] : llvm::enumerate(dims.getAsRange<StringAttr>()))
        nameOf.try_emplace(classes.classOf(v.value, d), name);
  function.walk([&](StackOp op) {
    nameOf.try_emplace(classes.classOf(op.getResult(), 0), StringAttr::get(op.getContext(), "layers"));
  });
  // A resized dim keeps its name.
  function.walk([&](ResizeOp op) {
    unsigned from = classes.classOf(op.getX(), op.getDim()), to = classes.classOf(op.getResult(), op.getDim());
    StringAttr name = nameOf.lookup(from) ? nameOf.lookup(from) : nameOf.lookup(to);
    if (name)
      nameOf.try_emplace(from, name), nameOf.try_emplace(to, name);
  });
  // A sequence that a reshape divides has chunks, each with neighbouring tokens. Those of a loss are groups.
  llvm::DenseSet<unsigned> ofLoss;
  function.walk([&](PickOp op) {
    for (int64_t d = 0, e = rankOf(op.getLogits()); d < e; ++d)
      ofLoss.insert(classes.classOf(op.getLogits(), d));
  });
  function.walk([&](ReshapeOp op) {
    FactorRule rule = op.getFactorRule();
    auto visit = [&](Value whole, ArrayRef<int> dims, Value part, ArrayRef<int> partDims) {
      for (auto [d, f] : llvm::enumerate(dims))
        if (StringAttr name = nameOf.lookup(classes.classOf(whole, d));
            name && name.getValue() == "sequence" && isDivided(op, rule, f)) {
          unsigned id = classes.classOf(part, llvm::find(partDims, f) - partDims.begin());
          nameOf.try_emplace(id, StringAttr::get(op.getContext(), ofLoss.contains(id) ? "groups" : "chunks"));
        }
    };
    visit(op.getX(), rule.operands[0], op.getResult(), rule.results[0]);
    visit(op.getResult(), rule.results[0], op.getX(), rule.operands[0]);
  });
  for (PlacementValue &v : graph.values)
    for (int64_t d = 0, e = rankOf(v.value); d < e; ++d)
      v.names.push_back(nameOf.lookup(classes.classOf(v.value, d)));
}

/// Reads the whole function, then gives names to dims, then finds the versions of values that pins apply to.
LogicalResult GraphReader::read(func::FuncOp function) {
  if (function.getNumArguments() || !function.getBody().hasOneBlock())
    return function.emitError() << "only a program of one block without arguments can be placed";
  size_t most = 0; // reserve exactly, because nodes are large
  function.walk(
      [&](Operation *op) { most += 1 + (isa<AccumulateOp>(op) ? op->getNumOperands() + op->getNumResults() : 0); });
  graph.nodes.reserve(most);
  // Without an accumulation the program is one forward (and backward) pass.
  if (failed(readBlock(function.getBody().front(), Section::Forward, 1)))
    return failure();
  nameDims(function);
  return success();
}

} // namespace

/// The rest version of a value is the value as computed, unless its only reader reduces it. In that case it is the
/// reduced value. A result of `pc.accumulate` is always its own rest version.
void PlacementGraph::findRestVersions() {
  for (PlacementValue &v : values) {
    const PlacementNode &producer = nodes[v.producer];
    if (producer.kind == NodeKind::Move) {
      const PlacementValue &source = values[producer.operands[0]];
      v.rest = !source.rest && source.readers.size() == 1;
    }
    if (v.rest && producer.kind != NodeKind::Yield && v.readers.size() == 1)
      if (const PlacementNode &reader = nodes[v.readers[0].first]; reader.kind == NodeKind::Move)
        v.rest = cast<MoveOpInterface>(reader.op).getReduction() == PartialKind::None;
  }
}

FailureOr<PlacementGraph> PlacementGraph::read(func::FuncOp function) {
  GraphReader reader;
  if (failed(reader.read(function)))
    return failure();
  reader.graph.findRestVersions();
  return std::move(reader.graph);
}
