//===- Propagate.cpp - Read, solve, rewrite: one axis of a placed program ------------------===//
// Types change in place. In a body, reductions go right behind what they reduce; other moves right in front of the
// first reader of what they make, in the reader's block if all readers are in one body and else outside of it. So
// gathers for the body stay in the body, sums over microbatches are reduced once, and large values live shortly.
//===-----------------------------------------------------------------------------===//
#include "Problem.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

namespace {

class Rewriter {
public:
  Rewriter(Program &program, Problem &problem, const Seeds &seeds)
      : program(program), problem(problem), seeds(seeds), builder(seeds.axis.getContext()),
        axes(builder.getArrayAttr({seeds.axis})) {}

  void run() {
    // Trees are read before anything changes.
    for (unsigned value = 0; value < program.values.size(); ++value)
      place(value);
  }

private:
  /// Where something stands: the number of its node orders it in the program.
  struct Spot {
    unsigned node = ~0u;
    Operation *op = nullptr;
  };

  Operation *opOf(unsigned node) const { return program.nodes[node].op; }
  void place(unsigned value);
  RankedTensorType typeIn(const ProgramValue &v, AxisState state);
  Value move(const ProgramValue &v, unsigned value, Value from, AxisState source, AxisState target, Operation *before);
  Spot join(Spot a, Spot b) const;
  static Operation *behind(Value value);
  static bool isInBody(Operation *op) { return isa<AccumulateOp>(op->getParentOp()); }
  static bool isInBody(Value value) { return isa<AccumulateOp>(value.getParentBlock()->getParentOp()); }

  Program &program;
  Problem &problem;
  const Seeds &seeds;
  OpBuilder builder;
  ArrayAttr axes;
};

/// The type of `v` with the axis in `state`, at its place in the order of axes.
RankedTensorType Rewriter::typeIn(const ProgramValue &v, AxisState state) {
  PlaceAttr place = placement(v.value).with(seeds.axis, AxisState::whole());
  int64_t position = -1;
  if (state.isSplit())
    position = llvm::count_if(place.axes(state.dim()), [&](StringAttr other) {
      return seeds.order.isMajor(other, seeds.axis, v.names[state.dim()]);
    });
  return withEncoding(v.value.getType(), place.with(seeds.axis, state, position));
}

/// The earlier of two spots in one block; if only one is in a body, the body's op stands for it.
Rewriter::Spot Rewriter::join(Spot a, Spot b) const {
  if (!a.op || !b.op)
    return a.op ? a : b;
  if (a.op->getBlock() != b.op->getBlock()) {
    Spot &inner = isa<AccumulateOp>(a.op->getParentOp()) ? a : b;
    inner.op = inner.op->getParentOp();
  }
  return a.node < b.node ? a : b;
}

/// The op that follows the computation of `value`.
Operation *Rewriter::behind(Value value) {
  if (Operation *producer = value.getDefiningOp())
    return producer->getNextNode();
  return &cast<BlockArgument>(value).getOwner()->front();
}

void Rewriter::place(unsigned value) {
  ProgramValue &v = program.values[value];
  AxisState produced = problem.produced(value), rest = problem.rest(value);
  MoveTree tree = problem.tree(value);
  // Where every state is first needed: children of the tree before their parents.
  std::map<AxisState, Spot> spots;
  auto need = [&](AxisState state, Spot spot) { spots[state] = join(spots[state], spot); };
  for (auto [node, operand] : v.readers)
    need(problem.row(node).operands[operand], {node, opOf(node)});
  for (auto [state, parent] : llvm::reverse(tree.parents))
    need(parent, spots[state]);

  RankedTensorType own = typeIn(v, produced);
  std::map<AxisState, Value> versions;
  versions[rest] = rest == produced ? v.value : move(v, value, v.value, produced, rest, behind(v.value));
  for (auto [state, parent] : tree.parents) {
    Operation *at = spots[state].op;
    if (parent.isPartial() && isInBody(versions[parent]) && isInBody(at))
      at = behind(versions[parent]);
    versions[state] = move(v, value, versions[parent], parent, state, at);
  }
  for (auto [id, operand] : v.readers) {
    const Node &node = program.nodes[id];
    unsigned position = node.kind == NodeKind::Argument || node.kind == NodeKind::Yield ? node.number : operand;
    node.op->setOperand(position, versions[problem.row(id).operands[operand]]);
  }
  v.value.setType(own);
}

Value Rewriter::move(const ProgramValue &v, unsigned value, Value from, AxisState source, AxisState target,
                     Operation *before) {
  builder.setInsertionPoint(before);
  Location loc = v.value.getLoc();
  RankedTensorType type = typeIn(v, target);
  auto kind = source.isMax() ? PartialKind::Max : PartialKind::Sum;
  switch (*problem.moves().kind(problem.terms(value), source, target)) {
  case MoveKind::AllReduce:
    return AllReduceOp::create(builder, loc, type, kind, from, axes);
  case MoveKind::ReduceScatter:
    return ReduceScatterOp::create(builder, loc, type, kind, from, target.dim(), axes);
  case MoveKind::AllGather:
    return AllGatherOp::create(builder, loc, type, from, source.dim(), axes);
  case MoveKind::AllToAll:
    return AllToAllOp::create(builder, loc, type, from, source.dim(), target.dim(), axes);
  case MoveKind::Slice:
    return SliceOp::create(builder, loc, type, from, target.dim(), axes, 0, nullptr);
  case MoveKind::Mask:
    return MaskOp::create(builder, loc, type, from, axes);
  case MoveKind::Pad:
    return PadOp::create(builder, loc, type, from, source.dim(), axes);
  case MoveKind::Broadcast:
    return BroadcastOp::create(builder, loc, type, from, axes);
  case MoveKind::Scatter:
    return ScatterOp::create(builder, loc, type, from, target.dim(), axes);
  case MoveKind::Gather:
    return GatherOp::create(builder, loc, type, from, source.dim(), axes);
  case MoveKind::Reduce:
    return ReduceOp::create(builder, loc, type, kind, from, axes);
  case MoveKind::Permute: // never between two placements
  case MoveKind::Insert:
    break;
  }
  return {};
}

} // namespace

LogicalResult pc::propagate(ModuleOp module, const Seeds &seeds) {
  MeshAttr mesh = meshOf(module);
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isDeclaration())
      continue;
    FailureOr<Program> program = Program::read(function);
    if (failed(program))
      return failure();
    FailureOr<Problem> problem = Problem::build(*program, seeds, mesh);
    if (failed(problem) || failed(problem->solve()))
      return failure();
    Rewriter(*program, *problem, seeds).run();
  }
  return success();
}

AxisOrder::AxisOrder(ModuleOp module) : mesh(meshOf(module)) {
  module.walk([&](InputOp input) {
    PlaceAttr place = placement(input.getValue());
    for (int64_t d = 0, e = place ? place.getDims().size() : 0; d < e; ++d)
      for (StringAttr axis : place.axes(d))
        setData(axis);
    if (place)
      llvm::for_each(place.getRoot(), [&](StringAttr axis) { setRooted(axis); });
  });
  newest = nullptr; // those are split over already
}

bool pc::isWeight(const ProgramValue &v) {
  return isa_and_nonnull<ParameterOp, StateOp>(source(v.value).getDefiningOp());
}

AxisState pc::splitByName(Operation *leaf, const llvm::StringSet<> &names) {
  if (ArrayAttr dims = leafDims(leaf))
    for (auto [d, name] : llvm::enumerate(dims.getAsValueRange<StringAttr>()))
      if (names.contains(name))
        return AxisState::split(d);
  return AxisState::whole();
}

StringAttr pc::freshAxis(ModuleOp module, StringRef tactic, StringRef name) {
  MeshAttr mesh = meshOf(module);
  if (!mesh) {
    module.emitError() << tactic << ": the module has no mesh (pc-set-mesh comes first)";
    return {};
  }
  auto axis = StringAttr::get(module.getContext(), name);
  if (mesh.index(axis) < 0) {
    InFlightDiagnostic diagnostic = module.emitError()
                                    << tactic << ": axis '" << name << "' is not in the mesh, which has ";
    llvm::interleaveComma(mesh.getNames(), diagnostic,
                          [&](StringAttr known) { diagnostic << "'" << known.getValue() << "'"; });
    return {};
  }
  WalkResult bare = module.walk([&](ParameterOp parameter) {
    if (placement(parameter.getValue()))
      return WalkResult::advance();
    parameter.emitError() << tactic << ": tactics need a placed program (pc-set-mesh comes first); '"
                          << parameter.getName() << "' has type " << parameter.getValue().getType();
    return WalkResult::interrupt();
  });
  if (bare.wasInterrupted())
    return {};
  WalkResult used = module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (PlaceAttr place = placement(type); place && !place.state(axis).isWhole())
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  if (used.wasInterrupted()) {
    module.emitError() << tactic << ": axis '" << name << "' is used by an earlier tactic";
    return {};
  }
  return axis;
}
