//===- Program.cpp - A training step as propagation sees it ------------------------------===//
#include "Program.h"

#include "pc/IR/DimClasses.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

ArrayAttr pc::leafDims(Operation *leaf) {
  return llvm::TypeSwitch<Operation *, ArrayAttr>(leaf)
      .Case<ParameterOp, StateOp, InputOp>([](auto op) { return op.getDims(); })
      .Default(ArrayAttr());
}

std::string pc::describe(Operation *op) {
  auto quoted = [](const llvm::Twine &name) { return ("'" + name + "'").str(); };
  if (auto input = dyn_cast<InputOp>(op))
    return quoted(stringifyInputKind(input.getKind()));
  if (auto state = dyn_cast<StateOp>(op))
    return quoted(state.getName() + " of " + state.getParameter());
  if (auto parameter = dyn_cast<ParameterOp>(op))
    return quoted(parameter.getName());
  std::string kind = quoted(op->getName().getStringRef());
  return op->getLoc()->findInstanceOf<NameLoc>() ? kind + " of " + quoted(sourceName(op)) : kind;
}

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

Value pc::source(Value value) {
  while (true) {
    value = origin(value);
    if (!isa_and_nonnull<CastOp, ResizeOp>(value.getDefiningOp()))
      return value;
    value = value.getDefiningOp()->getOperand(0);
  }
}

int64_t ProgramValue::find(StringRef name) const {
  for (auto [d, own] : llvm::enumerate(names))
    if (own && own.getValue() == name)
      return d;
  return -1;
}

namespace {

int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// The rule of an identity from `operand` to `result`; a dim that only the operand has is in front.
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

class Reader {
public:
  LogicalResult read(func::FuncOp function);
  Program program;

private:
  LogicalResult readBlock(Block &block, Section section, int64_t times);
  LogicalResult readAccumulate(AccumulateOp accumulate);
  LogicalResult add(NodeKind kind, Section section, Operation *op, unsigned number, FactorRule rule,
                    ValueRange operands, ValueRange results, int64_t times);
  void nameDims(func::FuncOp function);

  llvm::DenseMap<Value, unsigned> indexOf;
};

LogicalResult Reader::add(NodeKind kind, Section section, Operation *op, unsigned number, FactorRule rule,
                          ValueRange operands, ValueRange results, int64_t times) {
  Node node{kind, section, op, number, std::move(rule), {}, {}};
  unsigned id = program.nodes.size();
  for (auto [i, operand] : llvm::enumerate(operands)) {
    auto it = indexOf.find(operand);
    if (it == indexOf.end())
      return op->emitError() << "cannot place an operand that no pc op of this function makes";
    node.operands.push_back(it->second);
    program.values[it->second].readers.push_back({id, i});
  }
  for (auto [i, result] : llvm::enumerate(results)) {
    if (!placement(result))
      return op->emitError() << "tactics need a placed program (pc-set-mesh comes first); '" << sourceName(op)
                             << "' has type " << result.getType();
    indexOf[result] = program.values.size();
    node.results.push_back(program.values.size());
    ProgramValue value;
    value.value = result;
    value.producer = id;
    value.result = i;
    value.section = section;
    value.times = times;
    program.values.push_back(std::move(value));
  }
  program.nodes.push_back(std::move(node));
  return success();
}

LogicalResult Reader::readAccumulate(AccumulateOp accumulate) {
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

LogicalResult Reader::readBlock(Block &block, Section section, int64_t times) {
  for (Operation &op : block) {
    if (isa<SeedOp>(op))
      section = Section::Backward;
    LogicalResult read =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](AccumulateOp accumulate) -> LogicalResult {
              if (times != 1 || !isa<func::FuncOp>(op.getParentOp()))
                return op.emitError() << "accumulate inside of another region cannot be placed";
              section = Section::Optimizer;
              return readAccumulate(accumulate);
            })
            .Case<FactorOpInterface>([&](FactorOpInterface factored) {
              return add(NodeKind::Compute, section, &op, 0, factored.getFactorRule(), op.getOperands(),
                         op.getResults(), times);
            })
            .Case<MoveOpInterface>([&](MoveOpInterface move) {
              bool max = move.getReduction() == PartialKind::Max;
              MoveKind kind = move.getMoveKind();
              bool passesMax =
                  max || kind == MoveKind::AllGather || kind == MoveKind::AllToAll || kind == MoveKind::Slice;
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

/// Leaves name their dims; every other dim is called what the leaves call the dims that it iterates together with.
void Reader::nameDims(func::FuncOp function) {
  DimClasses classes(function);
  llvm::DenseMap<unsigned, StringAttr> nameOf;
  for (ProgramValue &v : program.values)
    if (ArrayAttr dims = isa<BlockArgument>(v.value) ? ArrayAttr() : leafDims(v.value.getDefiningOp()))
      for (auto [d, name] : llvm::enumerate(dims.getAsRange<StringAttr>()))
        nameOf.try_emplace(classes.classOf(v.value, d), name);
  // A resized dim keeps its name.
  function.walk([&](ResizeOp op) {
    unsigned from = classes.classOf(op.getX(), op.getDim()), to = classes.classOf(op.getResult(), op.getDim());
    StringAttr name = nameOf.lookup(from) ? nameOf.lookup(from) : nameOf.lookup(to);
    if (name)
      nameOf.try_emplace(from, name), nameOf.try_emplace(to, name);
  });
  for (ProgramValue &v : program.values)
    for (int64_t d = 0, e = rankOf(v.value); d < e; ++d)
      v.names.push_back(nameOf.lookup(classes.classOf(v.value, d)));
}

LogicalResult Reader::read(func::FuncOp function) {
  if (function.getNumArguments() || !function.getBody().hasOneBlock())
    return function.emitError() << "a program to be placed is one block without arguments";
  // Without an accumulation the program is one forward (and backward) pass.
  if (failed(readBlock(function.getBody().front(), Section::Forward, 1)))
    return failure();
  nameDims(function);
  return success();
}

} // namespace

/// A computed value is the rest version of itself, but where all that is done with it is to reduce it: then the reduced
/// version is. What accumulates over microbatches rests as it accumulates.
void Program::findRestVersions() {
  for (ProgramValue &v : values) {
    const Node &producer = nodes[v.producer];
    if (producer.kind == NodeKind::Move) {
      const ProgramValue &source = values[producer.operands[0]];
      v.rest = !source.rest && source.readers.size() == 1;
    }
    if (v.rest && producer.kind != NodeKind::Yield && v.readers.size() == 1)
      if (const Node &reader = nodes[v.readers[0].first]; reader.kind == NodeKind::Move)
        v.rest = cast<MoveOpInterface>(reader.op).getReduction() == PartialKind::None;
  }
}

FailureOr<Program> Program::read(func::FuncOp function) {
  Reader reader;
  if (failed(reader.read(function)))
    return failure();
  reader.program.findRestVersions();
  return std::move(reader.program);
}
