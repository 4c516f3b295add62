//===- Ranks.cpp - N ranks in one process ------------------------------------------===//
#include "pc/Reference/Ranks.h"

#include <cmath>

using namespace mlir;
using namespace pc;

int64_t Ranks::index(int64_t rank, ArrayRef<StringAttr> axes) const {
  int64_t result = 0;
  if (!mesh)
    return result;
  SmallVector<int64_t> coordinates = mesh.coordinates(rank);
  for (StringAttr axis : axes)
    result = result * mesh.size(axis) + coordinates[mesh.index(axis)];
  return result;
}

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

RankTensors Ranks::split(const Tensor &global, PlaceAttr place) const {
  RankTensors parts;
  for (int64_t rank = 0; rank < count(); ++rank)
    if (!place || index(rank, place.getRoot()) == 0)
      parts.push_back(global.box(blockStart(rank, global.shape, place), localShape(global.shape, place)));
    else // undefined
      parts.push_back(Tensor(localShape(global.shape, place), NAN));
  return parts;
}

Tensor Ranks::assemble(ArrayRef<Tensor> parts, ArrayRef<int64_t> global, PlaceAttr place, double &disagreement) const {
  // The tensor is replicated over axes that the placement does not name: one copy per coordinate on them.
  SmallVector<StringAttr> copyAxes;
  if (mesh)
    for (StringAttr axis : mesh.getNames())
      if (!place || place.state(axis).isWhole())
        copyAxes.push_back(axis);
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

/// All of `parts` one after the other along dim `d`.
static Tensor concatenate(ArrayRef<const Tensor *> parts, int64_t d) {
  Shape shape = parts[0]->shape, start(shape.size(), 0);
  int64_t block = shape[d];
  shape[d] *= parts.size();
  Tensor result(shape);
  for (const Tensor *part : parts) {
    result.merge(start, *part, [](double &whole, double x) { whole = x; });
    start[d] += block;
  }
  return result;
}

/// Block `i` of `n` equal blocks of `x` along dim `d`.
static Tensor block(const Tensor &x, int64_t d, int64_t i, int64_t n) {
  Shape sizes = x.shape, start(sizes.size(), 0);
  sizes[d] /= n;
  start[d] = i * sizes[d];
  return x.box(start, sizes);
}

RankTensors Ranks::apply(MoveOpInterface move, ArrayRef<Tensor> parts, ArrayRef<Tensor> base) const {
  SmallVector<StringAttr> axes = move.getMoveAxes();
  SmallVector<StringAttr> with = move.getMoveWith();
  int64_t dim = move.getMoveDim(), n = count(axes), shift = move.getMoveShift();
  RankTensors results;
  for (int64_t rank = 0; rank < count(); ++rank) {
    const Tensor &own = parts[rank];
    int64_t at = index(rank, axes);
    // The coordinate of the rank whose block a slice, an insert or a permute is about.
    int64_t other = with.empty() ? (at + n - shift) % n : (shift + 2 * n - at - index(rank, with)) % n;
    SmallVector<const Tensor *> group;
    for (int64_t member : this->group(rank, axes))
      group.push_back(&parts[member]);
    switch (move.getMoveKind()) {
    case MoveKind::AllReduce:
      results.push_back(reduce(group, move.getReduction()));
      break;
    case MoveKind::ReduceScatter:
      results.push_back(block(reduce(group, move.getReduction()), dim, at, n));
      break;
    case MoveKind::AllGather:
      results.push_back(concatenate(group, dim));
      break;
    case MoveKind::AllToAll:
      results.push_back(block(concatenate(group, dim), move.getOtherDim(), at, n));
      break;
    case MoveKind::Slice:
      results.push_back(block(own, dim, other, n));
      break;
    case MoveKind::Mask:
      results.push_back(at == 0 ? own : Tensor(own.shape));
      break;
    case MoveKind::Pad: {
      Shape shape = own.shape, start(shape.size(), 0);
      start[dim] = at * shape[dim];
      shape[dim] *= n;
      Tensor padded(shape);
      padded.merge(start, own, [](double &whole, double x) { whole = x; });
      results.push_back(std::move(padded));
      break;
    }
    case MoveKind::Broadcast:
      results.push_back(*group[0]);
      break;
    case MoveKind::Scatter:
      results.push_back(block(*group[0], dim, at, n));
      break;
    case MoveKind::Gather: {
      Tensor all = concatenate(group, dim);
      results.push_back(at == 0 ? all : Tensor(all.shape, NAN));
      break;
    }
    case MoveKind::Reduce:
      results.push_back(at == 0 ? reduce(group, move.getReduction()) : Tensor(own.shape, NAN));
      break;
    case MoveKind::Permute:
      results.push_back(*group[other]);
      break;
    case MoveKind::Insert: {
      Shape shape = own.shape, start(shape.size(), 0);
      start[dim] = other * shape[dim];
      shape[dim] *= n;
      Tensor whole = base.empty() ? Tensor(shape, NAN) : base[rank];
      whole.merge(start, own, [](double &before, double x) { before = x; });
      results.push_back(std::move(whole));
      break;
    }
    }
  }
  return results;
}
