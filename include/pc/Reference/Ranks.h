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

/// The simulated ranks of a mesh, numbered row-major over its axes. It has no state of its own: tensors are passed in
/// as one per rank, and every function returns new ones.
class Ranks {
public:
  /// The ranks of `mesh`; one rank where it is null.
  explicit Ranks(MeshAttr mesh) : mesh(mesh) {}

  /// The number of all ranks.
  int64_t count() const { return mesh ? mesh.numRanks() : 1; }
  /// The number of ranks along `axes`.
  int64_t count(llvm::ArrayRef<mlir::StringAttr> axes) const { return mesh && !axes.empty() ? mesh.size(axes) : 1; }
  /// The mixed-radix number of the coordinates of `rank` on `axes`, major to minor.
  int64_t index(int64_t rank, llvm::ArrayRef<mlir::StringAttr> axes) const;
  /// The ranks that differ from `rank` on `axes` only, in the order of their index on `axes`.
  llvm::SmallVector<int64_t> group(int64_t rank, llvm::ArrayRef<mlir::StringAttr> axes) const;

  /// The shape of one rank's block of a tensor of shape `global` (null placement: all of it). Constraint: dims divide.
  Shape localShape(llvm::ArrayRef<int64_t> global, PlaceAttr place) const;
  /// The global index of the first element of the block of `rank`.
  Shape blockStart(int64_t rank, llvm::ArrayRef<int64_t> global, PlaceAttr place) const;
  /// Every rank's block of `global`; `place` is not partial.
  RankTensors split(const Tensor &global, PlaceAttr place) const;
  /// The tensor of shape `global` whose parts the ranks hold: concatenates blocks and reduces partial values. Sets
  /// `disagreement` to the largest difference between ranks that should hold the same.
  Tensor assemble(llvm::ArrayRef<Tensor> parts, llvm::ArrayRef<int64_t> global, PlaceAttr place,
                  double &disagreement) const;

  /// The results of `move` on all ranks, whose operands are `parts`. `base`: the tensors that an insert inserts into,
  /// if it has any.
  RankTensors apply(MoveOpInterface move, llvm::ArrayRef<Tensor> parts, llvm::ArrayRef<Tensor> base = {}) const;

private:
  MeshAttr mesh;
};

} // namespace pc

#endif
