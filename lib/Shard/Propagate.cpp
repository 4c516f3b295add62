//===- Propagate.cpp - Read, solve, rewrite: one axis of a placed program ------------------===//
// Invariants, and why the result is correct:
//  1. Before: every value is whole on the axis. Reading and solving change nothing.
//  2. The solution: a legal row per node and a move tree per value, from the state in which it is produced to the
//     states that its readers' rows need. Trees depend on numbers read before, not on the IR, so rewriting does not
//     change them.
//  3. Values are rewritten once each, in program order. After one, its type has the produced state, each node of its
//     tree is one move, and each reader reads the version that its row needs. Other values are as they were.
//  4. A version is placed before its first reader and the first move that reads it, so it dominates them.
//  5. After: every op has a legal row. Only types and moves were added, so erasure gives the step program back.
// In the body of pc.accumulate, a reduction follows its operand directly. Other moves are placed before their first
// reader, and inside the body only if all readers are inside. So gathers for the body are freed in it, and sums are
// reduced once.
//===-----------------------------------------------------------------------------===//
#include "PlacementProblem.h"

#include "mlir/IR/Builders.h"
#include "pc/IR/AnyOp.h"
#include "llvm/Support/Debug.h"
#include <deque>

#define DEBUG_TYPE "pc-propagate"

using namespace mlir;
using namespace pc;

namespace {

/// Writes a solved problem into the program: one call of place() per value, in program order.
class Rewriter {
public:
  Rewriter(PlacementGraph &graph, PlacementProblem &problem, const Seeds &seeds)
      : graph(graph), problem(problem), seeds(seeds), builder(seeds.axis.getContext()),
        axes(builder.getArrayAttr({seeds.axis})) {}

  void run() {
    for (unsigned value = 0; value < graph.values.size(); ++value)
      place(value);
  }

private:
  /// A position in the program: an op and the number of its node. Positions are compared by the number.
  struct Spot {
    unsigned node = ~0u;
    Operation *op = nullptr;
  };

  Operation *opOf(unsigned node) const { return graph.nodes[node].op; }
  void place(unsigned value);
  RankedTensorType typeIn(const PlacementValue &v, AxisState state);
  Value move(const PlacementValue &v, unsigned value, Value from, AxisState source, AxisState target,
             Operation *before);
  Spot join(Spot a, Spot b) const;
  static Operation *after(Value value);
  static bool isInBody(Operation *op) { return isa<AccumulateOp>(op->getParentOp()); }
  static bool isInBody(Value value) { return isa<AccumulateOp>(value.getParentBlock()->getParentOp()); }

  PlacementGraph &graph;
  PlacementProblem &problem;
  const Seeds &seeds;
  OpBuilder builder;
  ArrayAttr axes;
};

/// The type of `v` if the axis being placed has `state`. A split inserts the axis among the axes of the dim, which are
/// ordered from major to minor.
RankedTensorType Rewriter::typeIn(const PlacementValue &v, AxisState state) {
  PlaceAttr place = placement(v.value).with(seeds.axis, AxisState::whole());
  int64_t position = -1;
  if (state.isSplit())
    position = llvm::count_if(place.axes(state.dim()), [&](StringAttr other) {
      return seeds.order.isMajor(other, seeds.axis, v.names[state.dim()]);
    });
  return withEncoding(v.value.getType(), place.with(seeds.axis, state, position));
}

/// The earlier of two spots; if only one of them is in the body of pc.accumulate, pc.accumulate itself replaces it.
Rewriter::Spot Rewriter::join(Spot a, Spot b) const {
  if (!a.op || !b.op)
    return a.op ? a : b;
  if (a.op->getBlock() != b.op->getBlock()) {
    Spot &inner = isa<AccumulateOp>(a.op->getParentOp()) ? a : b;
    inner.op = inner.op->getParentOp();
  }
  return a.node < b.node ? a : b;
}

/// The first op that may read `value`.
Operation *Rewriter::after(Value value) {
  if (Operation *producer = value.getDefiningOp())
    return producer->getNextNode();
  return &cast<BlockArgument>(value).getOwner()->front();
}

/// Places one value: first finds where each state of its tree is needed, then inserts the moves in the order of the
/// tree, and lets each reader read its version.
void Rewriter::place(unsigned value) {
  PlacementValue &v = graph.values[value];
  AxisState produced = problem.produced(value), rest = problem.rest(value);
  MoveTree tree = problem.tree(value);
  // The spot at which each state is first needed. Children come before their parents, whose spots depend on theirs.
  std::map<AxisState, Spot> spots;
  auto need = [&](AxisState state, Spot spot) { spots[state] = join(spots[state], spot); };
  for (auto [node, operand] : v.readers)
    need(problem.row(node).operands[operand], {node, opOf(node)});
  for (auto [state, parent] : llvm::reverse(tree.parents))
    need(parent, spots[state]);

  RankedTensorType own = typeIn(v, produced);
  std::map<AxisState, Value> versions;
  versions[rest] = rest == produced ? v.value : move(v, value, v.value, produced, rest, after(v.value));
  for (auto [state, parent] : tree.parents) {
    Operation *at = spots[state].op;
    if (parent.isPartial() && isInBody(versions[parent]) && isInBody(at))
      at = after(versions[parent]);
    versions[state] = move(v, value, versions[parent], parent, state, at);
  }
  for (auto [id, operand] : v.readers) {
    const PlacementNode &node = graph.nodes[id];
    unsigned position = node.kind == NodeKind::Argument || node.kind == NodeKind::Yield ? node.number : operand;
    node.op->setOperand(position, versions[problem.row(id).operands[operand]]);
  }
  LLVM_DEBUG(llvm::dbgs() << seeds.axis << ": " << own << " with " << tree.parents.size() << " moves for "
                          << v.readers.size() << " readers, at " << v.value.getLoc() << "\n");
  v.value.setType(own);
}

/// Inserts the move from `source` to `target`. The state that is split, if any, gives the move's dim.
Value Rewriter::move(const PlacementValue &v, unsigned value, Value from, AxisState source, AxisState target,
                     Operation *before) {
  builder.setInsertionPoint(before);
  Location loc = v.value.getLoc();
  RankedTensorType type = typeIn(v, target);
  auto kind = source.isMax() ? PartialKind::Max : PartialKind::Sum;
  MoveKind move = *problem.moves().kind(problem.terms(value), source, target);
  int64_t dim = (takesBlocks(move) ? source : target).dim();
  return createMove(builder, loc, move, type, from, kind, dim, target.dim(), axes)->getResult(0);
}

} // namespace

/// Solves all functions before it rewrites any, so that a failure leaves the module unchanged.
LogicalResult pc::propagate(ModuleOp module, const Seeds &seeds, FoundPlacement *found) {
  MeshAttr mesh = meshOf(module);
  std::deque<PlacementGraph> graphs;
  std::deque<PlacementProblem> problems;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isDeclaration())
      continue;
    FailureOr<PlacementGraph> graph = PlacementGraph::read(function);
    if (failed(graph))
      return failure();
    graphs.push_back(std::move(*graph));
    FailureOr<PlacementProblem> problem = PlacementProblem::build(graphs.back(), seeds, mesh);
    if (failed(problem))
      return failure();
    problems.push_back(std::move(*problem));
    LogicalResult solved = problems.back().solve(/*tellTooWide=*/!found);
    if (found)
      *found = problems.back().found();
    if (failed(solved))
      return failure();
  }
  for (auto [graph, problem] : llvm::zip_equal(graphs, problems))
    Rewriter(graph, problem, seeds).run();
  return success();
}

/// Reads which axes the inputs already use: axes that split an input are data axes, and axes on which an input is
/// rooted are rooted axes.
AxisOrder::AxisOrder(ModuleOp module) : mesh(meshOf(module)) {
  module.walk([&](InputOp input) {
    PlaceAttr place = placement(input.getValue());
    for (StringRef dim : input.getDims().getAsValueRange<StringAttr>())
      dims.insert(dim.str());
    for (int64_t d = 0, e = place ? place.getDims().size() : 0; d < e; ++d)
      for (StringAttr axis : place.axes(d))
        setData(axis);
    if (place)
      llvm::for_each(place.getRoot(), [&](StringAttr axis) { setRooted(axis); });
  });
  module.walk([&](ParameterOp parameter) {
    PlaceAttr place = placement(parameter.getValue());
    int64_t dim = expertsDim(parameter.getDims());
    if (SmallVector<StringAttr> axes = place && dim >= 0 ? place.axes(dim) : SmallVector<StringAttr>(); !axes.empty())
      if (data.count(axes.front().getValue().str()))
        setExperts(axes.front());
  });
  if (dims.count("sequence"))
    dims.insert("chunks"); // axes that split both have the same order
  newest = nullptr;        // only the data axis of the current tactic is new
}

bool pc::isWeight(const PlacementValue &v) {
  return isa_and_nonnull<ParameterOp, StateOp>(source(v.value).getDefiningOp());
}

/// The dim of experts of an expert's weights, which also have a dim "expert_ffn"; -1 for any other leaf.
int64_t pc::expertsDim(ArrayAttr dims) {
  auto find = [&](StringRef name) {
    auto range = dims.getAsValueRange<StringAttr>();
    auto it = llvm::find(range, name);
    return it == range.end() ? -1 : std::distance(range.begin(), it);
  };
  return dims && find("expert_ffn") >= 0 ? find("experts") : -1;
}

/// The first dim with one of the names is split. A leaf without such a dim stays whole.
AxisState pc::splitByName(Operation *leaf, const llvm::StringSet<> &names) {
  if (ArrayAttr dims = leafDims(leaf))
    for (auto [d, name] : llvm::enumerate(dims.getAsValueRange<StringAttr>()))
      if (names.contains(name))
        return AxisState::split(d);
  return AxisState::whole();
}

/// The error for an unknown axis lists the axes of the mesh.
StringAttr pc::freshAxis(ModuleOp module, StringRef tactic, StringRef name) {
  MeshAttr mesh = meshOf(module);
  if (!mesh) {
    module.emitError() << tactic << ": the module has no mesh; run pc-set-mesh first";
    return {};
  }
  auto axis = StringAttr::get(module.getContext(), name);
  if (mesh.index(axis) < 0) {
    InFlightDiagnostic diagnostic = module.emitError()
                                    << tactic << ": axis '" << name << "' is not in the mesh, whose axes are ";
    llvm::interleaveComma(mesh.getNames(), diagnostic,
                          [&](StringAttr known) { diagnostic << "'" << known.getValue() << "'"; });
    return {};
  }
  WalkResult bare = module.walk([&](ParameterOp parameter) -> WalkResult {
    if (placement(parameter.getValue()))
      return success();
    return parameter.emitError() << tactic << ": tactics need a placed program, so run pc-set-mesh first; '"
                                 << parameter.getName() << "' has type " << parameter.getValue().getType();
  });
  if (bare.wasInterrupted())
    return {};
  if (anyPlacement(module, [&](PlaceAttr place) { return !place.state(axis).isWhole(); })) {
    module.emitError() << tactic << ": axis '" << name << "' is used by an earlier tactic";
    return {};
  }
  return axis;
}
