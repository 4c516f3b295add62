//===- Ranks.h - N ranks in one process ----------------------------------------------===//
// Splits tensors into the blocks of the ranks, assembles them again, and applies moves to them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_RANKS_H
#define PC_REFERENCE_RANKS_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"

namespace pc {

/// One tensor per rank.
using RankTensors = std::vector<Tensor>;

/// The simulated ranks of a mesh, numbered row-major over its axes. It holds no tensors: functions take one tensor per
/// rank and return new ones.
class Ranks {
public:
  /// The ranks of `mesh`, or one rank if it is null.
  explicit Ranks(MeshAttr mesh) : mesh(mesh) {}

  /// The number of all ranks.
  int64_t count() const { return mesh ? mesh.numRanks() : 1; }
  /// The number of ranks along `axes`.
  int64_t count(llvm::ArrayRef<mlir::StringAttr> axes) const { return mesh && !axes.empty() ? mesh.size(axes) : 1; }
  /// The mixed-radix number of the coordinates of `rank` on `axes`, major to minor.
  int64_t index(int64_t rank, llvm::ArrayRef<mlir::StringAttr> axes) const;
  /// The ranks that differ from `rank` only on `axes`, in the order of their index on `axes`.
  llvm::SmallVector<int64_t> group(int64_t rank, llvm::ArrayRef<mlir::StringAttr> axes) const;

  /// The shape of one rank's block of a tensor of shape `global`; all of it if `place` is null. The sizes of split dims
  /// must be divisible.
  Shape localShape(llvm::ArrayRef<int64_t> global, PlaceAttr place) const;
  /// The global index of the first element of the block of `rank`.
  Shape blockStart(int64_t rank, llvm::ArrayRef<int64_t> global, PlaceAttr place) const;
  /// Every rank's block of `global`. `place` must not be partial.
  RankTensors split(const Tensor &global, PlaceAttr place) const;
  /// Assembles a tensor of shape `global` from the parts of the ranks: concatenates blocks and reduces partial values.
  /// Sets `disagreement` to the largest difference between ranks that should hold the same.
  Tensor assemble(llvm::ArrayRef<Tensor> parts, llvm::ArrayRef<int64_t> global, PlaceAttr place,
                  double &disagreement) const;

  /// The results of `move` on all ranks for the operands `parts`. `base` has the tensors into which an insert writes,
  /// if there are any.
  RankTensors apply(MoveOpInterface move, llvm::ArrayRef<Tensor> parts, llvm::ArrayRef<Tensor> base = {}) const;

  bool exact = false; ///< addends that are sent as codes are not rounded

private:
  MeshAttr mesh;
};

} // namespace pc

#endif
