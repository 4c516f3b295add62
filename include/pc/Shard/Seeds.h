//===- Seeds.h - What a tactic chooses on one axis ----------------------------------------===//
// A tactic is these choices: which dims the axis may and must split, where leaves and a few other values lie, and which
// values must not be sent. Propagation finds the rest.
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

/// Choices cost seconds of a machine in place of bytes on the wire.
struct TimePrices {
  MachineModel machine;
  double perByte = 0; ///< seconds that a byte of a rank is worth: of parameters, their gradients and states
};

/// What was found along an axis, with seconds where choices cost them.
struct FoundPlacement {
  double seconds = 0;      ///< of a step
  double gap = 0;          ///< no placement costs less by more than this share
  double bytes = 0;        ///< of a rank's parameters, gradients and states
  size_t largestTable = 0; ///< entries
  bool tooWide = false;    ///< nothing was found: a table would have been too large
  std::string leftOut;     ///< names of dims that stayed whole so that no table was, with commas between
};

/// A tactic fills one for its axis and calls propagate(). Every field has a default that asks for nothing: all values
/// whole. The functions are called during propagation only, and must depend only on their arguments.
struct Seeds {
  Seeds(mlir::StringRef tactic, mlir::StringAttr axis, AxisOrder order)
      : tactic(tactic.str()), axis(axis), order(std::move(order)) {}

  std::string tactic; ///< the pass, for messages
  mlir::StringAttr axis;
  AxisOrder order;

  /// Names of dims that are split wherever an op has one. Cheap linear ops may read partial sums instead.
  llvm::StringSet<> must;
  /// Whether `must` applies to the op that makes this value; not, for instance, if the value is too small to matter.
  std::function<bool(const PlacementValue &)> binds = [](const PlacementValue &) { return true; };
  /// Names of dims that may be split where that saves bytes. All others are never split on this axis.
  llvm::StringSet<> may;
  /// Sections with names of their own: only these may be split there, and `must` does not apply.
  std::map<Section, llvm::StringSet<>> only;
  /// Whether this dim, whose name is allowed, may be split in this value.
  std::function<bool(const PlacementValue &, int64_t dim)> splits = [](const PlacementValue &, int64_t) {
    return true;
  };
  /// Where a leaf lies; several states where the search may choose.
  std::function<llvm::SmallVector<AxisState, 2>(mlir::Operation *leaf)> leaf = [](mlir::Operation *) {
    return llvm::SmallVector<AxisState, 2>{AxisState::whole()};
  };
  /// The state that a value is moved to right after it was computed; all moves to its readers start there. Asked of one
  /// version of each value only (`PlacementValue::rest`).
  std::function<std::optional<AxisState>(const PlacementValue &)> pin = [](const PlacementValue &) {
    return std::nullopt;
  };
  /// For the message that no placement is legal: what would work instead. May be empty.
  std::string instead;
  /// Whether values may be rooted: exist only on coordinate 0 of the axis.
  bool rooted = false;
  /// Prices in seconds; none: in bytes on the wire.
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

/// Whether `v` is a parameter or optimizer state, also moved, copied, rounded or resized. Tensor parallelism sends
/// none.
bool isWeight(const PlacementValue &v);

/// Which of these dims of a leaf is that of experts, or -1: of weights of experts alone, which also have a width of
/// their own. A router, which compares all experts, has none.
int64_t expertsDim(mlir::ArrayAttr dims);

/// Split along the first dim of `leaf` whose name is in `names`, else whole.
AxisState splitByName(mlir::Operation *leaf, const llvm::StringSet<> &names);

/// Places the step in `module` along the axis of `seeds` and inserts the moves. Fails with errors at the ops that have
/// no legal placement. `found`, if given: what that costs; that a table would be too large is then no error, but only
/// said there.
mlir::LogicalResult propagate(mlir::ModuleOp module, const Seeds &seeds, FoundPlacement *found = nullptr);

/// Leaves all to the search: dims called `names` may be split wherever that costs less, leaves lie in any way.
void setFree(Seeds &seeds, const llvm::StringSet<> &names);

/// Propagates with all dims that leaves name free, except those that a search of this size cannot decide: first those
/// of inputs stay whole, the batch before all, then those that fewest elements of parameters have.
mlir::LogicalResult propagateFree(mlir::ModuleOp module, Seeds seeds, FoundPlacement &found);

/// Removes the moves over `axis` and makes every value whole on it. Other axes stay as they are.
void unplace(mlir::ModuleOp module, mlir::StringAttr axis);

/// Gives the readers of `value` in the forward pass a value that `make` builds before the first of them, and the
/// readers in the backward pass another one. Returns the built values.
llvm::SmallVector<mlir::Value> separateReaders(mlir::Value value,
                                               llvm::function_ref<mlir::Value(mlir::OpBuilder &)> make);

/// Applies separateReaders to `values` with a `pc.copy` of each. Each copy is then gathered by itself: the gather of
/// the forward pass is not kept for the backward pass. Returns the copies.
llvm::SmallVector<mlir::Value> copyForReaders(mlir::ArrayRef<mlir::Value> values);

/// Applies copyForReaders to the activations that linears read: the gradient of a weight then gathers its activation
/// again. Returns the activations.
llvm::DenseSet<mlir::Value> separateLinearOperands(mlir::ModuleOp module);

/// The axis `name` of the module's mesh, checked to be there and not yet in use; else an error that names `tactic`, and
/// null.
mlir::StringAttr freshAxis(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringRef name);

} // namespace pc

#endif
