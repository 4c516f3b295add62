//===- Block.cpp - Which part of a tensor a rank holds --------------------===//
// Computes blocks and holders from coordinates. The ranks that hold a block are those that differ only on axes outside
// of its layout.
//===----------------------------------------------------------------------===//
#include "base/Block.h"

using namespace pcrt;

std::string pcrt::describe(const Dims &dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

int64_t Mesh::stride(int axis) const {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < sizes.size(); ++i)
    inner *= sizes[i];
  return inner;
}

int64_t Mesh::coordinate(int rank, int axis) const { return rank / stride(axis) % sizes[axis]; }

Block pcrt::blockOf(const Mesh &mesh, const Dims &shape, const Layout &layout, int rank) {
  Block block{Dims(shape.size(), 0), shape};
  for (size_t dim = 0; dim < layout.size(); ++dim) {
    int64_t index = 0, blocks = 1;
    for (int axis : layout[dim]) {
      index = index * mesh.sizes[axis] + mesh.coordinate(rank, axis);
      blocks *= mesh.sizes[axis];
    }
    block.size[dim] = shape[dim] / blocks;
    block.start[dim] = index * block.size[dim];
  }
  return block;
}

Holder pcrt::holderOf(const Mesh &mesh, const Layout &layout, int rank, const std::vector<int> &apart) {
  Holder holder{1, 0};
  for (int axis = 0; axis < int(mesh.sizes.size()); ++axis) {
    auto has = [axis](const std::vector<int> &axes) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    if (has(apart) || std::any_of(layout.begin(), layout.end(), has))
      continue;
    holder.count *= mesh.sizes[axis];
    holder.index = holder.index * mesh.sizes[axis] + mesh.coordinate(rank, axis);
  }
  return holder;
}
