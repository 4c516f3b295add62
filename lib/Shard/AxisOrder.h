//===- AxisOrder.h - In which order axes split one dim -----------------------------------===//
// One strict total order per dim name, shared by all tactics, so that all values agree on every dim. Only the minor end
// of a dim's list can be gathered or scattered, so the order decides which tactic may move what.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_AXISORDER_H
#define PC_LIB_SHARD_AXISORDER_H

#include "pc/IR/PC.h"
#include <map>

namespace pc {

class AxisOrder {
public:
  /// The order of the mesh on every dim: outermost axes are major.
  explicit AxisOrder(MeshAttr mesh) : mesh(mesh) {}

  /// Makes `axis` minor to all other axes on dims called `name` (ZeRO's axis on dims of weights).
  void setMinor(mlir::StringAttr axis, mlir::StringAttr name) {
    minor[{axis.getValue().str(), name.getValue().str()}] = true;
  }

  /// Whether `a` is major to `b` on dims called `name` (null: dims that nothing names).
  bool isMajor(mlir::StringAttr a, mlir::StringAttr b, mlir::StringAttr name) const {
    return key(a, name) < key(b, name);
  }

private:
  /// Ties between minor axes are broken by the mesh, which keeps the order strict.
  std::pair<bool, int64_t> key(mlir::StringAttr axis, mlir::StringAttr name) const {
    bool isMinor = name && minor.count({axis.getValue().str(), name.getValue().str()});
    return {isMinor, mesh.index(axis)};
  }

  MeshAttr mesh;
  std::map<std::pair<std::string, std::string>, bool> minor;
};

} // namespace pc

#endif
