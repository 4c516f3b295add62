//===- Ranks.cpp - N ranks in one process ------------------------------------------===//
// Defines every move on N ranks, and the meaning of a placement: the block of a global tensor on each rank (split), and
// the global tensor from the blocks (assemble). Copies that should be equal are compared. Undefined values are NaN.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Ranks.h"
#include "Evaluators.h"

#include <cmath>

using namespace mlir;
using namespace pc;

/// Without a mesh there is one rank, with index 0.
int64_t Ranks::index(int64_t rank, ArrayRef<StringAttr> axes) const {
  int64_t result = 0;
  if (!mesh)
    return result;
  SmallVector<int64_t> coordinates = mesh.coordinates(rank);
  for (StringAttr axis : axes)
    result = result * mesh.size(axis) + coordinates[mesh.index(axis)];
  return result;
}

/// Goes through all ranks, which is fast enough for simulated meshes.
SmallVector<int64_t> Ranks::group(int64_t rank, ArrayRef<StringAttr> axes) const {
  SmallVector<StringAttr> others;
  for (StringAttr axis : mesh.getNames())
    if (!llvm::is_contained(axes, axis))
      others.push_back(axis);
  SmallVector<int64_t> members(count(axes));
  for (int64_t other = 0; other < count(); ++other)
    if (index(other, others) == index(rank, others))
      members[index(other, axes)] = other;
  return members;
}

Shape Ranks::localShape(ArrayRef<int64_t> global, PlaceAttr place) const {
  Shape shape(global);
  for (int64_t d = 0; place && d < static_cast<int64_t>(shape.size()); ++d)
    shape[d] /= count(place.axes(d));
  return shape;
}

Shape Ranks::blockStart(int64_t rank, ArrayRef<int64_t> global, PlaceAttr place) const {
  Shape start = localShape(global, place);
  for (int64_t d = 0; d < static_cast<int64_t>(start.size()); ++d)
    start[d] *= place ? index(rank, place.axes(d)) : 0;
  return start;
}

/// Ranks that do not have a rooted value get NaNs, which must not be read.
RankTensors Ranks::split(const Tensor &global, PlaceAttr place) const {
  RankTensors parts;
  for (int64_t rank = 0; rank < count(); ++rank)
    if (!place || index(rank, place.getRoot()) == 0)
      parts.push_back(global.box(blockStart(rank, global.shape, place), localShape(global.shape, place)));
    else // undefined
      parts.push_back(Tensor(localShape(global.shape, place), NAN));
  return parts;
}

/// Copies are assembled separately and then compared, so that a disagreement between ranks shows.
Tensor Ranks::assemble(ArrayRef<Tensor> parts, ArrayRef<int64_t> global, PlaceAttr place, double &disagreement) const {
  // The tensor is replicated over axes that the placement does not name: one copy per coordinate on them.
  SmallVector<StringAttr> copyAxes;
  if (mesh)
    for (StringAttr axis : mesh.getNames())
      if (!place || place.state(axis).isWhole())
        copyAxes.push_back(axis);
  // Blocks are written to their places; addends (or candidates of a maximum) of one place are combined.
  bool largest = place && place.getKind() == PartialKind::Max;
  std::vector<Tensor> copies(count(copyAxes), Tensor(global, largest ? -INFINITY : 0));
  for (int64_t rank = 0; rank < count(); ++rank) {
    if (place && index(rank, place.getRoot()) != 0)
      continue; // undefined
    copies[index(rank, copyAxes)].merge(blockStart(rank, global, place), parts[rank], [&](double &whole, double part) {
      whole = largest ? std::max(whole, part) : whole + part;
    });
  }
  disagreement = 0;
  for (const Tensor &copy : copies)
    disagreement = std::max(disagreement, largestDifference(copies[0], copy));
  return copies[0];
}

/// All of `parts` combined element by element.
static Tensor reduce(ArrayRef<const Tensor *> parts, PartialKind kind) {
  Tensor result = *parts[0];
  for (const Tensor *part : parts.drop_front())
    for (int64_t i = 0; i < result.size(); ++i)
      result[i] = kind == PartialKind::Max ? std::max(result[i], (*part)[i]) : result[i] + (*part)[i];
  return result;
}

/// `whole` with `part` written as block `i` along dim `d`.
static Tensor withBlock(Tensor whole, const Tensor &part, int64_t d, int64_t i) {
  Shape start(part.shape.size(), 0);
  start[d] = i * part.shape[d];
  whole.merge(start, part, [](double &before, double x) { before = x; });
  return whole;
}

/// The shape of `n` blocks of shape `block` along dim `d`.
static Shape shapeOfBlocks(Shape block, int64_t d, int64_t n) {
  block[d] *= n;
  return block;
}

/// All of `parts`, concatenated along dim `d`.
static Tensor concatenate(ArrayRef<const Tensor *> parts, int64_t d) {
  Tensor result(shapeOfBlocks(parts[0]->shape, d, parts.size()));
  for (auto [i, part] : llvm::enumerate(parts))
    result = withBlock(std::move(result), *part, d, i);
  return result;
}

/// Block `i` of `n` equal blocks of `x` along dim `d`.
static Tensor block(const Tensor &x, int64_t d, int64_t i, int64_t n) {
  Shape sizes = x.shape, start(sizes.size(), 0);
  sizes[d] /= n;
  start[d] = i * sizes[d];
  return x.box(start, sizes);
}

/// Computes each rank's result from the operands of its group, by the kind of move.
RankTensors Ranks::apply(MoveOpInterface move, ArrayRef<Tensor> parts, ArrayRef<Tensor> base) const {
  RankTensors rounded;
  if (WireAttr wire = exact ? WireAttr() : move.getMoveWire()) {
    for (const Tensor &part : parts)
      rounded.push_back(roundAddend(part, wire));
    parts = rounded;
  }
  SmallVector<StringAttr> axes = move.getMoveAxes();
  SmallVector<StringAttr> with = move.getMoveWith();
  int64_t dim = move.getMoveDim(), n = count(axes), shift = move.getMoveShift();
  auto resultOn = [&](int64_t rank) -> Tensor {
    const Tensor &own = parts[rank];
    int64_t at = index(rank, axes);
    // The coordinate of the rank whose block a slice, an insert or a permute uses.
    int64_t other = with.empty() ? (at + n - shift) % n : (shift + 2 * n - at - index(rank, with)) % n;
    SmallVector<const Tensor *> group;
    for (int64_t member : this->group(rank, axes))
      group.push_back(&parts[member]);
    // Ranks that do not get a result have NaN, so that a wrong use of it is noticed.
    switch (move.getMoveKind()) {
    case MoveKind::AllReduce:
      return reduce(group, move.getReduction());
    case MoveKind::ReduceScatter:
      return block(reduce(group, move.getReduction()), dim, at, n);
    case MoveKind::AllGather:
      return concatenate(group, dim);
    case MoveKind::AllToAll:
      return block(concatenate(group, dim), move.getOtherDim(), at, n);
    case MoveKind::Slice:
      return block(own, dim, other, n);
    case MoveKind::Mask:
      return at == 0 ? own : Tensor(own.shape);
    case MoveKind::Pad:
      return withBlock(Tensor(shapeOfBlocks(own.shape, dim, n)), own, dim, at);
    case MoveKind::Broadcast:
      return *group[0];
    case MoveKind::Scatter:
      return block(*group[0], dim, at, n);
    case MoveKind::Gather:
      return at == 0 ? concatenate(group, dim) : Tensor(shapeOfBlocks(own.shape, dim, n), NAN);
    case MoveKind::Reduce:
      return at == 0 ? reduce(group, move.getReduction()) : Tensor(own.shape, NAN);
    case MoveKind::Carry:
      return own;
    case MoveKind::Permute:
      return *group[other];
    case MoveKind::Insert:
      return withBlock(base.empty() ? Tensor(shapeOfBlocks(own.shape, dim, n), NAN) : base[rank], own, dim, other);
    }
    llvm_unreachable("not a move");
  };
  RankTensors results;
  for (int64_t rank = 0; rank < count(); ++rank)
    results.push_back(resultOn(rank));
  return results;
}
