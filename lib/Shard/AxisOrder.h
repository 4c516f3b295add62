//===- AxisOrder.h - In which order axes split one dim -----------------------------------===//
// One strict total order per dim name, read from the program and so shared by all tactics: all values agree on every
// dim. Only the minor end of a dim's list can be gathered or scattered, so the order decides which tactic may move
// what.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_AXISORDER_H
#define PC_LIB_SHARD_AXISORDER_H

#include "pc/IR/PC.h"
#include <set>

namespace pc {

class AxisOrder {
public:
  /// The order of the mesh (outermost axes are major), but for data axes, which split an input of `module`, and those
  /// at whose root one lies.
  explicit AxisOrder(mlir::ModuleOp module);

  /// Makes `axis`, which the program is about to be split over, a data axis: major to all others on batch and sequence,
  /// where data axes have the order of the mesh; minor on every other dim, also to the data axes before it, so that its
  /// shards of weights are gathered from, and gradients scattered to, what the other axes made of a weight.
  void setData(mlir::StringAttr axis) {
    data.insert(axis.getValue().str());
    newest = axis;
  }

  /// Makes `axis` a data axis that is minor to all other data axes: what its root scatters becomes the minor end of the
  /// batch, and what it gathers has to be that.
  void setRooted(mlir::StringAttr axis) {
    setData(axis);
    rooted.insert(axis.getValue().str());
  }

  /// Whether `a` is major to `b` on dims called `name` (null: dims that nothing names).
  bool isMajor(mlir::StringAttr a, mlir::StringAttr b, mlir::StringAttr name) const {
    return key(a, name) < key(b, name);
  }

private:
  /// Ties between minor axes are broken by the mesh, which keeps the order strict.
  std::tuple<bool, bool, bool, int64_t> key(mlir::StringAttr axis, mlir::StringAttr name) const {
    bool isData = data.count(axis.getValue().str()), ofData = name && (name == "batch" || name == "sequence");
    return {isData != ofData, rooted.count(axis.getValue().str()) > 0, axis == newest && !ofData, mesh.index(axis)};
  }

  MeshAttr mesh;
  std::set<std::string> data, rooted;
  mlir::StringAttr newest; ///< of the data axes
};

} // namespace pc

#endif
