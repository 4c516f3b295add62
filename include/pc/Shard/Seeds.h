//===- Seeds.h - The choices of a tactic on one axis --------------------------------------===//
// A tactic consists of these choices: which dims the axis may and must split, the states of leaves and of a few other
// values, and which values must not be sent. Propagation finds all other states.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_SEEDS_H
#define PC_SHARD_SEEDS_H

#include "AxisOrder.h"
#include "PlacementGraph.h"
#include "pc/Cost/Machine.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"
#include <functional>
#include <optional>

namespace pc {

/// The prices of choices that cost seconds on a machine instead of bytes on the wire.
struct TimePrices {
  MachineModel machine;
  double perByte = 0; ///< the price in seconds of a byte of parameters, gradients and states on a rank
};

/// The result of a placement along an axis, with seconds if choices cost seconds.
struct FoundPlacement {
  double seconds = 0;      ///< predicted seconds of a step
  double gap = 0;          ///< no placement is cheaper by more than this share
  double bytes = 0;        ///< bytes of a rank's parameters, gradients and states
  size_t largestTable = 0; ///< entries of the largest table
  bool tooWide = false;    ///< no placement was found, because a table would have been too large
  std::string leftOut;     ///< comma-separated names of dims that stayed whole to keep tables small
};

/// A tactic fills a Seeds for its axis and calls propagate(). With the defaults of all fields, all values are whole.
/// The functions are called only during propagation, and must depend only on their arguments.
struct Seeds {
  Seeds(mlir::StringRef tactic, mlir::StringAttr axis, AxisOrder order)
      : tactic(tactic.str()), axis(axis), order(std::move(order)) {}

  std::string tactic; ///< name of the pass, for messages
  mlir::StringAttr axis;
  AxisOrder order;

  /// Names of dims that are split wherever an op has one. Cheap linear ops may read partial sums instead.
  llvm::StringSet<> must;
  /// Whether `must` applies to the op that makes this value. For instance, it may not apply if the value is small.
  std::function<bool(const PlacementValue &)> binds = [](const PlacementValue &) { return true; };
  /// Names of dims that may be split if that saves bytes. Other dims are never split on this axis.
  llvm::StringSet<> may;
  /// Sections with separate names: in such a section, only these dims may be split, and `must` does not apply.
  std::map<Section, llvm::StringSet<>> only;
  /// Whether this dim, whose name is allowed, may be split in this value.
  std::function<bool(const PlacementValue &, int64_t dim)> splits = [](const PlacementValue &, int64_t) {
    return true;
  };
  /// The state of a leaf, or several states from which the search may choose.
  std::function<llvm::SmallVector<AxisState, 2>(mlir::Operation *leaf)> leaf = [](mlir::Operation *) {
    return llvm::SmallVector<AxisState, 2>{AxisState::whole()};
  };
  /// The state to which a value is moved right after it was computed; all moves to its readers start there. Called only
  /// for one version of each value (`PlacementValue::rest`).
  std::function<std::optional<AxisState>(const PlacementValue &)> pin = [](const PlacementValue &) {
    return std::nullopt;
  };
  /// Text that proposes what would be legal, for the error that no placement is legal. May be empty.
  std::string instead;
  /// Whether values may be rooted, which means that they exist only on coordinate 0 of the axis.
  bool rooted = false;
  /// Prices in seconds; if there are none, prices are bytes on the wire.
  std::optional<TimePrices> times;
  /// Values that are never sent along the axis.
  std::function<bool(const PlacementValue &)> fixed = [](const PlacementValue &) { return false; };

  /// Whether the axis may split dims called `name` in `section`.
  bool allows(Section section, mlir::StringAttr name) const {
    if (!name)
      return false;
    if (auto it = only.find(section); it != only.end())
      return it->second.contains(name);
    return must.contains(name) || may.contains(name);
  }
  /// Whether the axis may split dims called `name` in some section.
  bool allowsAnywhere(mlir::StringAttr name) const {
    return name && (must.contains(name) || may.contains(name) ||
                    llvm::any_of(only, [&](auto &entry) { return entry.second.contains(name); }));
  }
};

/// Whether `v` is a parameter or optimizer state, possibly moved, copied, rounded or resized. Tensor parallelism never
/// sends such values.
bool isWeight(const PlacementValue &v);

/// Which of these dims of a leaf is the dim of experts, or -1. Only weights of experts have one, and these also have a
/// dim for the width of an expert. The weight of a router, which compares all experts, has none.
int64_t expertsDim(mlir::ArrayAttr dims);

/// Returns split along the first dim of `leaf` whose name is in `names`, or whole.
AxisState splitByName(mlir::Operation *leaf, const llvm::StringSet<> &names);

/// Places the step in `module` along the axis of `seeds` and inserts the moves. Fails with errors at the ops that have
/// no legal placement. `found`, if given, receives the cost; then a table that would be too large is not an error, but
/// only reported there.
mlir::LogicalResult propagate(mlir::ModuleOp module, const Seeds &seeds, FoundPlacement *found = nullptr);

/// Lets the search decide everything: dims with these names may be split wherever that costs less, and leaves may have
/// any state.
void setFree(Seeds &seeds, const llvm::StringSet<> &names);

/// Propagates; any dim that a leaf names may be split. If the search would be too large, some dims stay whole: first
/// the dims of inputs, beginning with the batch, then the dims that the fewest elements of parameters have.
mlir::LogicalResult propagateFree(mlir::ModuleOp module, Seeds seeds, FoundPlacement &found);

/// Removes the moves over `axis` and makes every value whole on it. Other axes stay as they are.
void unplace(mlir::ModuleOp module, mlir::StringAttr axis);

/// Applies separateReaders to `values` with a `pc.copy` of each. Each copy is then gathered separately, so the backward
/// pass gathers again, and the result of the forward gather is not kept. Returns the copies.
llvm::SmallVector<mlir::Value> copyForReaders(mlir::ArrayRef<mlir::Value> values);

/// Applies copyForReaders to the activations that linear layers read: the gradient of a weight then gathers its
/// activation again. Returns the activations.
llvm::DenseSet<mlir::Value> separateLinearOperands(mlir::ModuleOp module);

/// The axis `name` of the module's mesh, which must exist and not be in use yet. Otherwise emits an error that names
/// `tactic` and returns null.
mlir::StringAttr freshAxis(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringRef name);

} // namespace pc

#endif
