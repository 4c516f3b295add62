//===- Block.h - Which part of a tensor a rank holds ----------------------===//
// A block is the part of a tensor that one rank holds. A box is the part of a file's tensor that holds the value. The
// blocks of all ranks follow from mesh, shape and layout, so any rank can compute them. forEachRun and forEachPiece
// list the stretches of elements that are contiguous both in memory and in the file.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_BLOCK_H
#define PCRT_BASE_BLOCK_H

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

using Dims = std::vector<int64_t>;
using Layout = std::vector<std::vector<int>>; ///< For each dim, the mesh axes that split it, major to minor.
constexpr int kMaxRank = 8;

inline int64_t product(const Dims &dims) {
  int64_t total = 1;
  for (int64_t size : dims)
    total *= size;
  return total;
}

/// Dims as text, such as "[768, 2304]".
std::string describe(const Dims &dims);

/// The ranks of a program as a grid with named axes. Rank numbers are row major: ranks that differ only on the last
/// axis are consecutive.
struct Mesh {
  std::vector<std::string> names;
  Dims sizes; ///< Outermost first.

  int ranks() const { return int(product(sizes)); }
  /// The difference in rank between two ranks whose coordinates on axis `axis` differ by one.
  int64_t stride(int axis) const;
  /// Coordinate of `rank` on axis `axis`.
  int64_t coordinate(int rank, int axis) const;
};

/// The part of a tensor that one rank holds. Sizes include padding.
struct Block {
  Dims start, size;

  int64_t elements() const { return product(size); }
};

/// Returns the block of `rank`. The layout divides the shape, which is checked when the program is read.
Block blockOf(const Mesh &mesh, const Dims &shape, const Layout &layout, int rank);

/// The number of ranks that hold the same block, and the index of `rank` among them.
struct Holder {
  int64_t count, index;
};

/// Returns the holder of the block of `rank`. Ranks whose coordinates on the axes `apart` differ never count as holders
/// of the same block.
Holder holderOf(const Mesh &mesh, const Layout &layout, int rank, const std::vector<int> &apart = {});

/// A box of a larger row-major tensor.
struct Box {
  Dims shape; ///< The shape of the whole tensor.
  Dims start, size;

  /// A box that is the whole tensor.
  static Box whole(const Dims &shape) { return {shape, Dims(shape.size(), 0), shape}; }
};

/// Finds the stretches of the part of `block` that lies inside `valid`, and calls f(blockOffset, valueOffset, count)
/// for each. A stretch is contiguous both in the rank's block (row major, of block.size) and in the value (row major,
/// of `valid`). The block may begin before the value (block.start < 0) and end after it.
template <typename F> void forEachRun(const Dims &valid, const Block &block, F &&f) {
  int rank = int(valid.size());
  int64_t first[kMaxRank], size[kMaxRank], blockStride[kMaxRank], valueStride[kMaxRank], index[kMaxRank] = {};
  int64_t blockRow = 1, valueRow = 1;
  for (int dim = rank - 1; dim >= 0; --dim) {
    first[dim] = std::max<int64_t>(-block.start[dim], 0);
    size[dim] = std::min(block.size[dim], valid[dim] - block.start[dim]) - first[dim];
    if (size[dim] <= 0)
      return;
    blockStride[dim] = blockRow;
    valueStride[dim] = valueRow;
    blockRow *= block.size[dim];
    valueRow *= valid[dim];
  }
  // Trailing dims that are whole on both sides join the stretch.
  int64_t count = 1;
  int outer = rank;
  while (outer > 0) {
    --outer;
    count *= size[outer];
    if (size[outer] != valid[outer] || size[outer] != block.size[outer])
      break;
  }
  for (;;) {
    int64_t blockOffset = 0, valueOffset = 0;
    for (int dim = 0; dim < rank; ++dim) {
      int64_t at = first[dim] + (dim < outer ? index[dim] : 0);
      blockOffset += at * blockStride[dim];
      valueOffset += (at + block.start[dim]) * valueStride[dim];
    }
    f(blockOffset, valueOffset, count);
    int dim = outer - 1;
    while (dim >= 0 && ++index[dim] == size[dim])
      index[dim--] = 0;
    if (dim < 0)
      return;
  }
}

/// Like forEachRun, for a value whose elements lie in a box of a larger tensor. Calls f(blockOffset, tensorOffset,
/// count). The box has as many elements as `valid`, in the same row-major order.
template <typename F> void forEachPiece(const Dims &valid, const Block &block, const Box &box, F &&f) {
  int rank = int(box.shape.size());
  int64_t stretch = 1; // the number of contiguous elements of the box
  for (int dim = rank - 1; dim >= 0; --dim) {
    stretch *= box.size[dim];
    if (box.size[dim] != box.shape[dim])
      break;
  }
  forEachRun(valid, block, [&](int64_t blockOffset, int64_t valueOffset, int64_t count) {
    while (count > 0) {
      int64_t piece = std::min(count, stretch - valueOffset % stretch);
      int64_t rest = valueOffset, offset = 0, row = 1;
      for (int dim = rank - 1; dim >= 0; --dim) {
        offset += (rest % box.size[dim] + box.start[dim]) * row;
        rest /= box.size[dim];
        row *= box.shape[dim];
      }
      f(blockOffset, offset, piece);
      blockOffset += piece;
      valueOffset += piece;
      count -= piece;
    }
  });
}

} // namespace pcrt

#endif // PCRT_BASE_BLOCK_H
