//===- AxisOrder.h - The order in which axes split one dim -------------------------------===//
// There is one strict total order of the axes per dim name. It is read from the program and shared by all tactics, so
// axes that split one dim have the same order in every value. Only the minor end of a dim's list of axes can be
// gathered or scattered, so the order decides which tactic may move what.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_AXISORDER_H
#define PC_SHARD_AXISORDER_H

#include "pc/IR/PC.h"
#include <set>

namespace pc {

/// State: the mesh, and which axes are data axes, are rooted, or split experts. Invariant: isMajor() is a strict total
/// order of the axes for every dim name, so that two tactics never disagree about it.
class AxisOrder {
public:
  /// The order of the mesh (outermost axes are major), except for the data axes: those over which an input of `module`
  /// is split or rooted.
  explicit AxisOrder(mlir::ModuleOp module);

  /// Makes `axis`, which the current tactic places, a data axis. On dims of inputs, data axes are major to all others,
  /// and in mesh order among themselves. On other dims they are minor, and `axis` is also minor to earlier data axes.
  /// So an all_gather of a weight over `axis` gives a block of the other axes, and a reduce_scatter over `axis` starts
  /// from such a block.
  void setData(mlir::StringAttr axis) {
    data.insert(axis.getValue().str());
    newest = axis;
  }

  /// Makes `axis` a data axis that is minor to all other data axes, because the scatter from its root adds the axis at
  /// the minor end of the batch's list, and the gather to the root removes it there.
  void setRooted(mlir::StringAttr axis) {
    setData(axis);
    rooted.insert(axis.getValue().str());
  }

  /// Makes `axis`, over which experts are split, a data axis that is minor to all others on dims of inputs. So tokens
  /// can be gathered over it before the experts, while the blocks of the other axes stay separate.
  void setExperts(mlir::StringAttr axis) {
    setData(axis);
    experts.insert(axis.getValue().str());
  }

  /// Whether `a` is major to `b` on dims called `name` (null: dims without a name).
  bool isMajor(mlir::StringAttr a, mlir::StringAttr b, mlir::StringAttr name) const {
    return key(a, name) < key(b, name);
  }

private:
  /// Ties between minor axes are broken by the mesh, which keeps the order strict.
  std::tuple<bool, bool, bool, bool, int64_t> key(mlir::StringAttr axis, mlir::StringAttr name) const {
    std::string text = axis.getValue().str();
    bool isData = data.count(text), ofData = name && dims.count(name.getValue().str());
    return {isData != ofData, rooted.count(text) > 0, ofData && experts.count(text), axis == newest && !ofData,
            mesh.index(axis)};
  }

  MeshAttr mesh;
  std::set<std::string> data, rooted, experts;
  std::set<std::string> dims; ///< the dims of inputs (batch, sequence), and chunks of the sequence
  mlir::StringAttr newest;    ///< the data axis that was set last
};

} // namespace pc

#endif
