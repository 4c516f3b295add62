//===- PlacementProblem.cpp - Tables of prices, their solution, and errors ------------------===//
// Each node of the graph chooses one row. Tables hold the prices of choices: one per node for the op itself, and one or
// more per value for its moves. The solver minimizes their sum. The price of the solution is then computed again
// without tables. If no choice is legal, the one with the fewest illegal moves is found and reported.
//===-----------------------------------------------------------------------------===//
#include "PlacementProblem.h"

#include "pc/Cost/Cost.h"

using namespace mlir;
using namespace pc;

PlacementProblem::PlacementProblem(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh)
    : graph(graph), seeds(seeds), mesh(mesh), size(mesh.size(seeds.axis)),
      moveTable(seeds.times ? Moves(mesh, seeds.axis, seeds.times->machine) : Moves(size)) {}

FailureOr<PlacementProblem> PlacementProblem::build(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh) {
  PlacementProblem problem(graph, seeds, mesh);
  problem.readTerms();
  if (failed(problem.chooseRows()))
    return failure();
  return problem;
}

/// The price of a product of stacked matrices, in bytes that take as long to send. Otherwise every rank would compute
/// all products, because that sends the fewest bytes.
Price PlacementProblem::stackPrice(const PlacementNode &node, const Row &row) const {
  constexpr int64_t flopsPerByte = 1000; // the ratio is lower for CPUs, and larger matrices have more flops per byte
  bool isStacked = node.section == Section::Optimizer && node.kind == NodeKind::Compute &&
                   graph.values[node.results[0]].find("layers") >= 0;
  if (!isStacked || !flopsOf(node.op))
    return {};
  __int128 flops = 2;
  for (const Factor &factor : partOf(node, row).factors)
    flops *= factor.size;
  return {(flops * size / flopsPerByte) << 40, 0, 0};
}

/// The price of an op without moves: the elements that a rank computes, and 1 for reading a partial sum, so that among
/// placements with equal traffic, the one that reduces earlier wins. For values that `pc.accumulate` yields, the
/// opposite holds: a partial sum is preferred, because it is then reduced once and not per microbatch.
Price PlacementProblem::ownPrice(const PlacementNode &node, const Row &row) const {
  Price price = seeds.times ? ownTimes(node, row) : stackPrice(node, row);
  if (node.kind == NodeKind::Yield) {
    price.late = row.results[0].isSum() ? 0 : int64_t(1) << 32;
    return price;
  }
  if (node.kind == NodeKind::Compute)
    for (auto [value, state] : llvm::zip(node.results, row.results))
      price.work += elements[value] / (state.isSplit() ? size : 1) * graph.values[value].times;
  if (llvm::any_of(row.operands, [](AxisState state) { return state.isSum(); }))
    price.late = 1;
  return price;
}

/// A pinned value first moves to the state of its pin, and from there to the states of its readers.
Price PlacementProblem::movePrice(unsigned value, AxisState from, StateSet needed) {
  const MoveTerms &terms = valueTerms[value];
  if (std::optional<AxisState> pin = pins[value]; pin && *pin != from)
    return moveTable.price(terms, from, *pin) + moveTable.tree(terms, *pin, needed).price;
  return moveTable.tree(terms, from, needed).price;
}

/// Makes one variable per node, whose choices are its rows. A table has the price of each row, and other tables have
/// the prices of moves between nodes.
void PlacementProblem::makeTables() {
  tables.clear();
  choices.clear();
  for (auto [id, node] : llvm::enumerate(graph.nodes)) {
    choices.push_back(rows[id].size());
    PriceTable own{{static_cast<unsigned>(id)}, {}};
    for (const Row &row : rows[id])
      own.entries.push_back(ownPrice(node, row));
    tables.push_back(std::move(own));
  }
  for (unsigned value = 0; value < graph.values.size(); ++value)
    addValue(value);
  tieUpdates();
}

/// If a leaf has several possible placements, its update gets the placement of the leaf. Their rows have the same
/// order.
void PlacementProblem::tieUpdates() {
  for (auto [id, node] : llvm::enumerate(graph.nodes)) {
    size_t n = rows[id].size();
    if (node.kind != NodeKind::Update || n == 1)
      continue;
    auto update = cast<UpdateOp>(node.op);
    PriceTable table{{leafNodes.at(leafKey(update.getName(), update.getParameter())), static_cast<unsigned>(id)}, {}};
    for (size_t leaf = 0; leaf < n; ++leaf)
      for (size_t row = 0; row < n; ++row)
        table.entries.push_back(leaf == row ? Price() : Price::illegal());
    tables.push_back(std::move(table));
  }
}

/// Adds a table over the producer and up to two readers of `value`.
void PlacementProblem::addValue(unsigned value) {
  const PlacementValue &v = graph.values[value];
  SmallVector<unsigned> readers;
  for (auto [node, operand] : v.readers)
    if (readers.empty() || readers.back() != node) // operands of one node are neighbours in the list
      readers.push_back(node);
  std::vector<std::vector<StateSet>> needs; // per reader and row
  for (unsigned node : readers) {
    std::vector<StateSet> &sets = needs.emplace_back(rows[node].size());
    for (auto [reader, operand] : v.readers)
      if (reader == node)
        for (auto [set, row] : llvm::zip(sets, rows[node]))
          set.insert(row.operands[operand]);
  }
  if (readers.size() > 2)
    return addSharedValue(value, readers, needs);
  PriceTable table;
  table.variables.push_back(v.producer);
  llvm::append_range(table.variables, readers);
  static const std::vector<StateSet> nothing(1);
  const std::vector<StateSet> &first = needs.size() > 0 ? needs[0] : nothing,
                              &second = needs.size() > 1 ? needs[1] : nothing;
  for (const Row &row : rows[v.producer])
    for (StateSet a : first)
      for (StateSet b : second)
        table.entries.push_back(movePrice(value, row.results[v.result], a | b));
  tables.push_back(std::move(table));
}

/// For a value with more than two readers, a table over all of them would be too large. So there is an additional
/// variable, whose choices are pairs (produced state, set of states that moves produce). Tables with prices 0 or
/// illegal connect it to the producer and to each reader.
void PlacementProblem::addSharedValue(unsigned value, ArrayRef<unsigned> readers,
                                      ArrayRef<std::vector<StateSet>> needs) {
  const PlacementValue &v = graph.values[value];
  StateSet anyNeeded;
  for (const std::vector<StateSet> &sets : needs)
    for (StateSet set : sets)
      anyNeeded = anyNeeded | set;
  SmallVector<AxisState, 6> possible = anyNeeded.states();
  std::vector<std::pair<AxisState, StateSet>> available;
  PriceTable own{{static_cast<unsigned>(choices.size())}, {}};
  StateSet seen;
  for (const Row &row : rows[v.producer]) {
    AxisState state = row.results[v.result];
    if (seen.contains(state))
      continue;
    seen.insert(state);
    for (unsigned subset = 1; subset < 1u << possible.size(); ++subset) {
      StateSet set;
      for (unsigned i = 0; i < possible.size(); ++i)
        if (subset >> i & 1)
          set.insert(possible[i]);
      available.push_back({state, set});
      own.entries.push_back(movePrice(value, state, set));
    }
  }
  unsigned variable = choices.size();
  choices.push_back(available.size());
  auto tie = [&](unsigned node, llvm::function_ref<bool(unsigned row, std::pair<AxisState, StateSet>)> fits) {
    PriceTable table{{variable, node}, {}};
    for (const auto &offer : available)
      for (unsigned row = 0; row < rows[node].size(); ++row)
        table.entries.push_back(fits(row, offer) ? Price() : Price::illegal());
    tables.push_back(std::move(table));
  };
  tables.push_back(std::move(own));
  tie(v.producer, [&](unsigned row, auto offer) { return rows[v.producer][row].results[v.result] == offer.first; });
  for (auto [node, sets] : llvm::zip(readers, needs))
    tie(node, [&](unsigned row, auto offer) { return offer.second.contains(sets[row]); });
}

/// Records the size of the largest table of all solutions.
std::optional<Assignment> PlacementProblem::minimizeTables(bool countIllegal) {
  makeTables();
  std::optional<Assignment> assignment = minimize(choices, std::move(tables), countIllegal);
  if (assignment)
    result.largestTable = std::max(result.largestTable, assignment->largestTable);
  return assignment;
}

/// Without a legal assignment, the solver is asked for one with the fewest illegal moves, and these are explained.
LogicalResult PlacementProblem::solve(bool tellTooWide) {
  std::optional<Assignment> assignment = seeds.times ? minimizeSeconds() : minimizeTables();
  if (assignment && assignment->price.isLegal()) {
    chosen = std::move(assignment->choice);
    if (!(chosenPrice() == assignment->price))
      return graph.nodes[0].op->emitError()
             << seeds.tactic << ": internal error: the cost of the chosen placement differs from the cost "
             << "that the search computed";
    return success();
  }
  if (assignment) // no placement is legal, so report the illegal moves of the placement that has fewest
    assignment = minimizeTables(/*countIllegal=*/true);
  result.tooWide = !assignment;
  if (!assignment && !tellTooWide)
    return failure();
  if (!assignment)
    return graph.nodes[0].op->emitError()
           << seeds.tactic << ": the search for a placement on axis '" << seeds.axis.getValue()
           << "' needs a table that is too large; use another tactic or a smaller axis";
  chosen = std::move(assignment->choice);
  explain();
  return failure();
}

StateSet PlacementProblem::needed(unsigned value) const {
  StateSet set;
  for (auto [node, operand] : graph.values[value].readers)
    set.insert(row(node).operands[operand]);
  return set;
}

/// The price of the chosen rows, computed again without the tables, to check the tables and the solver.
Price PlacementProblem::chosenPrice() {
  Price price;
  for (auto [id, node] : llvm::enumerate(graph.nodes))
    price += ownPrice(node, row(id));
  for (unsigned value = 0; value < graph.values.size(); ++value)
    price += movePrice(value, produced(value), needed(value));
  return price;
}

const MoveTree &PlacementProblem::tree(unsigned value) {
  return moveTable.tree(valueTerms[value], rest(value), needed(value));
}

static std::string stateName(AxisState state, const PlacementValue &v) {
  if (state.isSplit())
    return "split along dim " + std::to_string(state.dim()) +
           (v.names[state.dim()] ? " (" + v.names[state.dim()].getValue().str() + ")" : std::string());
  if (state.isRoot())
    return "only on the root rank";
  return state.isWhole() ? "whole" : state.isSum() ? "a partial sum" : "a partial maximum";
}

/// Emits errors for values that no move can bring from the produced state to a needed one.
void PlacementProblem::explain() {
  // If the message recommends something instead, one error is enough.
  int reported = 0, most = seeds.instead.empty() ? 4 : 1; // a message about what would work is given once
  for (auto [value, v] : llvm::enumerate(graph.values)) {
    if (movePrice(value, produced(value), needed(value)).isLegal() || reported++ >= most)
      continue;
    Operation *op = graph.nodes[v.producer].op;
    InFlightDiagnostic diagnostic = op->emitError() << seeds.tactic << ": no legal placement on axis '"
                                                    << seeds.axis.getValue() << "': " << describe(op) << " of type "
                                                    << v.value.getType() << " is " << stateName(produced(value), v)
                                                    << (valueTerms[value].fixed ? " and must stay there" : "");
    for (auto [node, operand] : v.readers) {
      AxisState need = row(node).operands[operand];
      if (need != rest(value) && !moveTable.price(valueTerms[value], rest(value), need).isLegal())
        diagnostic.attachNote(graph.nodes[node].op->getLoc())
            << describe(graph.nodes[node].op) << " needs it " << stateName(need, v);
    }
    if (!seeds.instead.empty())
      diagnostic.attachNote() << seeds.instead;
  }
  if (!reported)
    graph.nodes[0].op->emitError() << seeds.tactic << ": no legal placement on axis '" << seeds.axis.getValue() << "'";
}
