//===- LeavesByName.h - The leaf that an update sets ----------------------------------------===//
// `pc.update` refers to the parameter or state that it sets by name. This is the map from names back to values.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_LEAVESBYNAME_H
#define PC_IR_LEAVESBYNAME_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

/// Parameters and optimizer states, as updates name them.
class LeavesByName {
public:
  LeavesByName() = default;
  /// Those of `block` itself.
  explicit LeavesByName(mlir::Block &block) {
    for (mlir::Operation &op : block)
      add(&op);
  }

  /// Adds a parameter or a state; other ops are passed over.
  void add(mlir::Operation *op) {
    if (auto parameter = mlir::dyn_cast<ParameterOp>(op))
      leaves[{parameter.getNameAttr(), mlir::StringAttr()}] = parameter.getValue();
    else if (auto state = mlir::dyn_cast<StateOp>(op))
      leaves[{state.getParameterAttr(), state.getNameAttr()}] = state.getValue();
  }

  /// The leaf that `update` sets; null: there is none of its name.
  mlir::Value of(UpdateOp update) const {
    return update.getParameter() ? leaves.lookup({update.getParameterAttr(), update.getNameAttr()})
                                 : leaves.lookup({update.getNameAttr(), mlir::StringAttr()});
  }

  /// Whether the new value lies where the old one does, so that `update` takes nothing. Where homes are not planned
  /// yet, it will.
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
