//===- PlacementProblem.h - Placing a graph along one axis as an optimization problem -----===//
// Its variables are the row of each node and, for each value with more than two readers, the produced state together
// with the set of states that moves produce from it. Its tables have the prices of each node's rows and of each value's
// moves.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_PLACEMENTPROBLEM_H
#define PC_LIB_SHARD_PLACEMENTPROBLEM_H

#include "MoveTree.h"
#include "Solver.h"
#include "pc/Shard/PlacementGraph.h"
#include "pc/Shard/Seeds.h"

namespace pc {

/// build() creates variables and tables from a graph and seeds, solve() chooses, and the accessors then return rows,
/// states and move trees. Graph and seeds must outlive the problem. After solve(), it does not change.
class PlacementProblem {
public:
  /// Reads rows and terms from the program. Fails with errors if a leaf cannot have the placement that the seeds
  /// demand.
  static mlir::FailureOr<PlacementProblem> build(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh);

  /// Chooses a row per node. Fails with errors that explain why no placement is legal, or which table would be too
  /// large. Without `tellTooWide`, a table that would be too large is not an error; only `found` records it.
  mlir::LogicalResult solve(bool tellTooWide);

  /// The chosen row of a node.
  const Row &row(unsigned node) const { return rows[node][chosen[node]]; }
  /// The state in which a value is produced.
  AxisState produced(unsigned value) const {
    return row(graph.values[value].producer).results[graph.values[value].result];
  }
  /// The state from which the moves to all readers start: the pin of the value, or the state in which it is produced.
  AxisState rest(unsigned value) const { return pins[value] ? *pins[value] : produced(value); }
  /// The moves of a value from its rest state to the states that the chosen rows need.
  const MoveTree &tree(unsigned value);
  const MoveTerms &terms(unsigned value) const { return valueTerms[value]; }
  const Moves &moves() const { return moveTable; }
  /// The result of solve(), with the cost of the chosen rows if prices are seconds.
  const FoundPlacement &found() const { return result; }

private:
  PlacementProblem(const PlacementGraph &graph, const Seeds &seeds, MeshAttr mesh);

  // Rows (Rows.cpp)
  static std::string leafKey(llvm::StringRef name, std::optional<llvm::StringRef> parameter);
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
  Price stackPrice(const PlacementNode &node, const Row &row) const;
  Price movePrice(unsigned value, AxisState from, StateSet needed);
  void makeTables();
  void addValue(unsigned value);
  void addSharedValue(unsigned value, llvm::ArrayRef<unsigned> readers, llvm::ArrayRef<std::vector<StateSet>> needs);
  void tieUpdates();
  StateSet needed(unsigned value) const;
  Price chosenPrice();
  std::optional<Assignment> minimizeTables(bool countIllegal = false);
  void explain();

  // Prices in seconds (Seconds.cpp)
  bool isSumOfGradients(unsigned value) const;
  double elementBytes(unsigned value, AxisState state) const;
  double earlierMoveSeconds(const PlacementNode &node, const Row &row) const;
  FactorRule partOf(const PlacementNode &node, const Row &row) const;
  double ownSeconds(const PlacementNode &node, const Row &row) const;
  double hiddenShare(const PlacementNode &node) const;
  double leafBytes(const PlacementNode &node, AxisState state) const;
  Price ownTimes(const PlacementNode &node, const Row &row) const;
  void setExposed(int parts);
  /// Totals of the chosen rows, if prices are seconds.
  struct Judgement {
    double sums = 0, backward = 0; ///< seconds
    double bytes = 0;              ///< bytes of leaves
  };
  Judgement judge() const;
  std::optional<Assignment> minimizeSeconds();

  const PlacementGraph &graph;
  const Seeds &seeds;
  MeshAttr mesh;
  int64_t size; ///< ranks on the axis
  Moves moveTable;
  std::vector<llvm::SmallVector<Row, 4>> rows; ///< for each node, its rows in the order of preference
  std::vector<MoveTerms> valueTerms;
  std::vector<int64_t> elements; ///< per value: elements on a rank before it is split over this axis
  std::vector<std::optional<AxisState>> pins;
  std::vector<bool> mayBePartial;            ///< per value: some row produces it partial (mask and pad do not count)
  std::map<std::string, unsigned> leafNodes; ///< "name" or "state of name"
  std::vector<std::pair<unsigned, int64_t>> refused; ///< (value, dim) that must be split but cannot be
  std::vector<unsigned> choices;                     ///< per variable; variable i < nodes is the row of node i
  std::vector<PriceTable> tables;
  std::vector<unsigned> chosen;
  std::vector<bool> gradient; ///< per value, if prices are seconds: its moves sum a gradient
  int exposed = 1024;         ///< the part of these moves' seconds that the backward pass does not hide, in 1/1024
  FoundPlacement result;
};

} // namespace pc

#endif
