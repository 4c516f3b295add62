//===- PlacementProblem.h - Placing a graph along one axis as an optimization problem -----===//
// Variables: the row of each node, and for each value with more than two readers its state as produced with the set of
// states that moves make of it. Tables: the price of each node's row and of each value's moves.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_PLACEMENTPROBLEM_H
#define PC_LIB_SHARD_PLACEMENTPROBLEM_H

#include "MoveTree.h"
#include "PlacementGraph.h"
#include "Seeds.h"
#include "Solver.h"

namespace pc {

class PlacementProblem {
public:
  /// Reads rows and terms from the program. Fails with errors where a leaf cannot have the placement that the seeds
  /// say.
  static mlir::FailureOr<PlacementProblem> build(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh);

  /// Chooses a row per node. Fails with errors that explain why nothing is legal.
  mlir::LogicalResult solve();

  /// The chosen row of a node.
  const Row &row(unsigned node) const { return rows[node][chosen[node]]; }
  /// The state in which a value is produced.
  AxisState produced(unsigned value) const {
    return row(graph.values[value].producer).results[graph.values[value].result];
  }
  /// The state from which the moves to all readers start: the pin of the value, or the state in which it is produced.
  AxisState rest(unsigned value) const { return pins[value] ? *pins[value] : produced(value); }
  /// The moves of a value from its rest state to what the chosen rows need.
  const MoveTree &tree(unsigned value);
  const MoveTerms &terms(unsigned value) const { return valueTerms[value]; }
  const Moves &moves() const { return moveTable; }

private:
  PlacementProblem(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh);

  // Rows (Rows.cpp)
  void readTerms();
  mlir::LogicalResult chooseRows();
  mlir::LogicalResult leafRows(unsigned node);
  mlir::LogicalResult updateRows(unsigned node);
  void outputRows(unsigned node);
  void factorRows(unsigned node);
  bool isVersion(const PlacementNode &node) const;
  bool isBound(const PlacementNode &node) const;
  bool isSplittable(const PlacementNode &node, int factor);
  void applyPolicies(unsigned node);
  int64_t otherSplits(unsigned value, int64_t dim) const;
  bool divides(unsigned value, int64_t dim) const;
  mlir::InFlightDiagnostic indivisible(unsigned value, int64_t dim) const;

  // Tables (PlacementProblem.cpp)
  Price ownPrice(const PlacementNode &node, const Row &row) const;
  Price movePrice(unsigned value, AxisState from, StateSet needed);
  void makeTables();
  void addValue(unsigned value);
  void addSharedValue(unsigned value, llvm::ArrayRef<unsigned> readers, llvm::ArrayRef<std::vector<StateSet>> needs);
  StateSet needed(unsigned value) const;
  Price chosenPrice();
  void explain();

  const PlacementGraph &graph;
  const Seeds &seeds;
  MeshAttr mesh;
  int64_t size; ///< ranks on the axis
  Moves moveTable;
  std::vector<llvm::SmallVector<Row, 4>> rows; ///< per node, in the order of preference
  std::vector<MoveTerms> valueTerms;
  std::vector<int64_t> elements; ///< per value: on a rank before it is split over this axis
  std::vector<std::optional<AxisState>> pins;
  std::vector<bool> mayBePartial;              ///< per value: some row produces it partial (mask and pad do not count)
  std::map<std::string, AxisState> leafStates; ///< "name" or "state of name"
  std::vector<std::pair<unsigned, int64_t>> refused; ///< (value, dim) that must be split but does not divide
  std::vector<unsigned> choices;                     ///< per variable; variable i < nodes is the row of node i
  std::vector<PriceTable> tables;
  std::vector<unsigned> chosen;
};

} // namespace pc

#endif
