//===- Seeds.h - What a tactic chooses on one axis ----------------------------------------===//
// A tactic is nothing but this: which dims the axis may and must split, where leaves and a few other values lie, and
// what must not be sent. Propagation finds the rest.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_SEEDS_H
#define PC_LIB_SHARD_SEEDS_H

#include "AxisOrder.h"
#include "Program.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"
#include <functional>
#include <optional>

namespace pc {

struct Seeds {
  Seeds(mlir::StringRef tactic, mlir::StringAttr axis, AxisOrder order)
      : tactic(tactic.str()), axis(axis), order(std::move(order)) {}

  std::string tactic; ///< the pass, for messages
  mlir::StringAttr axis;
  AxisOrder order;

  /// Names of dims that are split wherever an op has one, but for cheap linear ops, which may wait on partials instead.
  llvm::StringSet<> must;
  /// Whether an op that makes this value is bound by `must`: values too small to matter need not be.
  std::function<bool(const ProgramValue &)> binds = [](const ProgramValue &) { return true; };
  /// Names of dims that may be split where that saves bytes. All others are never split on this axis.
  llvm::StringSet<> may;
  /// In these sections, the only names that may be split; none must be.
  std::map<Section, llvm::StringSet<>> only;
  /// Of the dims so named, those that may be split.
  std::function<bool(const ProgramValue &, int64_t dim)> splits = [](const ProgramValue &, int64_t) { return true; };
  /// Where a leaf lies; several states where the search may choose.
  std::function<llvm::SmallVector<AxisState, 2>(mlir::Operation *leaf)> leaf = [](mlir::Operation *) {
    return llvm::SmallVector<AxisState, 2>{AxisState::whole()};
  };
  /// Where a value rests: it is brought there right after it was computed and all readers start from there. Asked of
  /// one version of each value only (`ProgramValue::rest`).
  std::function<std::optional<AxisState>(const ProgramValue &)> pin = [](const ProgramValue &) { return std::nullopt; };
  /// What would fit where the program lets no placement be legal, for messages; empty where that is not known.
  std::string instead;
  /// Whether values may lie on coordinate 0 alone.
  bool rooted = false;
  /// Values that are never sent along the axis.
  std::function<bool(const ProgramValue &)> fixed = [](const ProgramValue &) { return false; };

  /// Whether the axis may split dims called `name` in `section`.
  bool allows(Section section, mlir::StringAttr name) const {
    if (!name)
      return false;
    if (auto it = only.find(section); it != only.end())
      return it->second.contains(name);
    return must.contains(name) || may.contains(name);
  }
  /// Whether it may do so in any section.
  bool allowsAnywhere(mlir::StringAttr name) const {
    return name && (must.contains(name) || may.contains(name) ||
                    llvm::any_of(only, [&](auto &entry) { return entry.second.contains(name); }));
  }
};

/// Whether `v` is a parameter or optimizer state, or one that was moved, copied, rounded or cut: what tensor
/// parallelism never sends.
bool isWeight(const ProgramValue &v);

/// Split along the first dim of `leaf` whose name is in `names`, else whole.
AxisState splitByName(mlir::Operation *leaf, const llvm::StringSet<> &names);

/// Places the step in `module` along the axis of `seeds` and inserts the moves. Fails with errors at the ops that stand
/// in the way.
mlir::LogicalResult propagate(mlir::ModuleOp module, const Seeds &seeds);

/// Takes `axis` out of the program: moves over it go, every value is whole on it. Other axes stay as they are.
void unplace(mlir::ModuleOp module, mlir::StringAttr axis);

/// Gives the readers of each of `values` a `pc.copy` of their own per phase of the step's body, so that what is
/// gathered for the forward pass is not kept for the backward pass. Returns the copies.
llvm::SmallVector<mlir::Value> separateReaders(mlir::ModuleOp module, mlir::ArrayRef<mlir::Value> values);

/// The same for the activations that linears read, so that the gradient of a weight gathers its activation again.
/// Returns the activations.
llvm::DenseSet<mlir::Value> separateLinearOperands(mlir::ModuleOp module);

/// The axis `name` of the module's mesh, checked to be there and not yet in use; else an error that names `tactic`, and
/// null.
mlir::StringAttr freshAxis(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringRef name);

} // namespace pc

#endif
