//===- LeavesByName.h - The leaf that an update writes --------------------------------------===//
// `pc.update` gives the name of the parameter or state that it writes. This is the map from names back to values.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_LEAVESBYNAME_H
#define PC_IR_LEAVESBYNAME_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

/// Finds parameters and optimizer states by the names that updates give.
class LeavesByName {
public:
  LeavesByName() = default;
  /// Reads the leaves of `block`, not those in nested blocks.
  explicit LeavesByName(mlir::Block &block) {
    for (mlir::Operation &op : block)
      add(&op);
  }

  /// Adds a parameter or a state; ignores other ops.
  void add(mlir::Operation *op) {
    if (auto parameter = mlir::dyn_cast<ParameterOp>(op))
      leaves[{parameter.getNameAttr(), mlir::StringAttr()}] = parameter.getValue();
    else if (auto state = mlir::dyn_cast<StateOp>(op))
      leaves[{state.getParameterAttr(), state.getNameAttr()}] = state.getValue();
  }

  /// The leaf that `update` writes; null if no leaf has its name.
  mlir::Value of(UpdateOp update) const {
    return update.getParameter() ? leaves.lookup({update.getParameterAttr(), update.getNameAttr()})
                                 : leaves.lookup({update.getNameAttr(), mlir::StringAttr()});
  }

  /// Whether the new value is at the same offset as the old one, so that `update` costs nothing. Before homes are
  /// planned, this is assumed.
  bool isInPlace(UpdateOp update) const {
    mlir::Value leaf = of(update);
    auto home = [](mlir::Value value) {
      auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
      return mlir::dyn_cast_or_null<HomeAttr>(type.getEncoding());
    };
    return leaf && home(leaf) == home(update.getValue());
  }

private:
  llvm::DenseMap<std::pair<mlir::StringAttr, mlir::StringAttr>, mlir::Value>
      leaves; ///< by parameter, and state or null
};

} // namespace pc

#endif
