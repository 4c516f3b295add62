//===- Seeds.h - What a tactic chooses on one axis ----------------------------------------===//
// A tactic is nothing but this: which dims the axis may and must split, where leaves and a few other values lie, and
// what must not be sent. Propagation finds the rest.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_SEEDS_H
#define PC_LIB_SHARD_SEEDS_H

#include "AxisOrder.h"
#include "Program.h"
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
  /// Names of dims that may be split where that saves bytes. All others are never split on this axis.
  llvm::StringSet<> may;
  /// In these sections, the only names that may be split; none must be.
  std::map<Section, llvm::StringSet<>> only;
  /// Where a leaf lies; several states where the search may choose.
  std::function<llvm::SmallVector<AxisState, 2>(mlir::Operation *leaf)> leaf = [](mlir::Operation *) {
    return llvm::SmallVector<AxisState, 2>{AxisState::whole()};
  };
  /// Where a value rests: it is brought there right after it was computed and all readers start from there. Asked of
  /// computed values only, not of moved versions.
  std::function<std::optional<AxisState>(const ProgramValue &)> pin = [](const ProgramValue &) { return std::nullopt; };
  /// Leaves that are never sent along the axis.
  std::function<bool(mlir::Operation *leaf)> fixed = [](mlir::Operation *) { return false; };

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

/// Split along the first dim of `leaf` whose name is in `names`, else whole.
AxisState splitByName(mlir::Operation *leaf, const llvm::StringSet<> &names);

/// Places the step in `module` along the axis of `seeds` and inserts the moves. Fails with errors at the ops that stand
/// in the way.
mlir::LogicalResult propagate(mlir::ModuleOp module, const Seeds &seeds);

/// The axis `name` of the module's mesh, checked to be there and not yet in use; else an error that names `tactic`, and
/// null.
mlir::StringAttr freshAxis(mlir::ModuleOp module, mlir::StringRef tactic, mlir::StringRef name);

} // namespace pc

#endif
