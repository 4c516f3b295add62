//===- MoveTree.h - Moves along one axis and the cheapest tree of them ------------------===//
// A value is produced in one state and needed in several. Its price is that of the cheapest tree of moves from the
// produced state to the needed ones. Examples of trees: a gather that several readers share, or a reduce_scatter and an
// all_gather instead of an all_reduce.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_MOVETREE_H
#define PC_LIB_SHARD_MOVETREE_H

#include "Price.h"
#include "pc/Cost/Cost.h"
#include "llvm/ADT/SmallVector.h"
#include <map>
#include <optional>

namespace pc {

/// A set of states of one value on one axis.
class StateSet {
public:
  void insert(AxisState state) { bits |= bit(state); }
  bool contains(AxisState state) const { return bits & bit(state); }
  bool contains(StateSet other) const { return (other.bits & ~bits) == 0; }
  StateSet operator|(StateSet other) const { return StateSet(bits | other.bits); }
  bool empty() const { return !bits; }
  /// The states, partials first, then whole, then splits by dim.
  llvm::SmallVector<AxisState, 6> states() const;
  uint64_t mask() const { return bits; }
  StateSet() = default;

private:
  explicit StateSet(uint64_t bits) : bits(bits) {}
  static uint64_t bit(AxisState state) { return uint64_t(1) << (state.code + 4); }
  uint64_t bits = 0;
};

/// The data that determine the price of a value's moves along one axis. Values with equal terms share their trees.
struct MoveTerms {
  int64_t bytes = 0;    ///< bytes on a rank before the value is split over this axis
  int64_t times = 1;    ///< how often a step computes the value (microbatches)
  uint64_t dims = 0;    ///< bit d: dim d may be split over the axis (the axis divides it, and its other axes are major)
  bool sum = false;     ///< partial sum on another axis
  bool max = false;     ///< partial max on another axis
  bool fixed = false;   ///< must not be sent
  int64_t rowBytes = 0; ///< for a routed value: the bytes of its routed tokens
  int experts = -1;     ///< for a routed value: its dim of experts
  int exposed = 1024;   ///< if prices are seconds: the exposed part of the seconds, in 1/1024
  friend auto operator<=>(const MoveTerms &, const MoveTerms &) = default;
};

/// For every state except the first, the state from which a move produces it.
struct MoveTree {
  Price price;
  llvm::SmallVector<std::pair<AxisState, AxisState>, 4> parents; ///< (state, made from), parents before children
};

/// The moves along one axis of `size` ranks.
class Moves {
public:
  /// Prices are bytes.
  explicit Moves(int64_t size) : size(size) {}
  /// Prices are seconds on `machine`.
  Moves(MeshAttr mesh, mlir::StringAttr axis, const MachineModel &machine)
      : size(mesh.size(axis)), mesh(mesh), axis(axis), machine(&machine) {}

  /// The single move between two different states; std::nullopt if there is none.
  std::optional<MoveKind> kind(const MoveTerms &terms, AxisState from, AxisState to) const;
  /// The price of this move; illegal if there is no such move.
  Price price(const MoveTerms &terms, AxisState from, AxisState to) const;
  /// The cheapest tree from `from` to all of `needed` (at most six states).
  const MoveTree &tree(const MoveTerms &terms, AxisState from, StateSet needed);

private:
  MoveTree search(const MoveTerms &terms, AxisState from, StateSet needed) const;

  /// The price of a move that sends `units` / n bytes.
  Price priceOf(MoveKind kind, __int128 units, const MoveTerms &terms) const;

  int64_t size;
  MeshAttr mesh;
  mlir::StringAttr axis;
  const MachineModel *machine = nullptr; ///< null: prices are bytes
  std::map<std::tuple<MoveTerms, int, uint64_t>, MoveTree> known;
};

} // namespace pc

#endif
