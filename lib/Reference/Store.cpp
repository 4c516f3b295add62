//===- Store.cpp - Where the interpreter keeps values --------------------------------------===//
// Without an arena, the store is a map from values to tensors. With an arena, values lie at their homes. The arena has
// one double per byte, but only the first byte of each element is used. So values that overlap overwrite each other as
// they would in memory.
//===-----------------------------------------------------------------------------===//
#include "Store.h"

#include <cmath>

using namespace mlir;
using namespace pc;

/// Bytes of one element of a tensor.
static int64_t width(Value value) { return (cast<RankedTensorType>(value.getType()).getElementTypeBitWidth() + 7) / 8; }

/// Whether two elements share a byte: codes of 4 bits. A byte is then the number 16 a + b for the codes a and b.
static bool isInPairs(Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isInteger(4); }

Store::Store(int64_t ranks, ArenaOp arena) {
  if (!arena)
    return;
  deviceBytes = static_cast<int64_t>(arena.getBytes());
  withHostBytes = deviceBytes + arena.sizeOf(Space::Host);
  arenaBytes = withHostBytes + arena.sizeOf(Space::Disk);
  // Bytes that were never written are NaN.
  arenas.assign(ranks, std::vector<double>(arenaBytes, std::numeric_limits<double>::quiet_NaN()));
}

// Values that are stored by rows have another order than their elements. They are kept separately, and their bytes in
// the arena are ignored.
int64_t Store::homeOf(Value value) const {
  if (rowsOf(value))
    return -1;
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding());
  if (!hasArena() || !home)
    return -1;
  int64_t offset = home.getOffset() + elementOffsets.lookup(value);
  Space space = spaceAt(offset);
  return offset - firstOffset(space) +
         (space == Space::Device ? 0
          : space == Space::Host ? deviceBytes
                                 : withHostBytes);
}

/// With homes, the value is read from the arenas, where a later op may have overwritten it.
const RankTensors &Store::get(Value value) {
  RankTensors &tensors = *values[value];
  if (int64_t home = homeOf(value); home >= 0)
    for (auto [tensor, arena] : llvm::zip_equal(tensors, arenas))
      for (int64_t i = 0; i < tensor.size(); ++i) {
        if (!isInPairs(value)) {
          tensor[i] = arena[home + i * width(value)];
          continue;
        }
        const double both = arena[home + i / 2], high = std::floor((both + 8) / 16);
        tensor[i] = i % 2 ? both - 16 * high : high;
      }
  return tensors;
}

/// With an arena, the elements are written to the value's home in the arena of each rank.
bool Store::set(Value value, RankTensors tensors) {
  if (int64_t home = homeOf(value); home >= 0) {
    const int64_t bytes = isInPairs(value) ? tensors[0].size() / 2 : tensors[0].size() * width(value);
    if (home + bytes > arenaBytes)
      return false;
    for (auto [tensor, arena] : llvm::zip_equal(tensors, arenas))
      for (int64_t i = 0; i < bytes / (isInPairs(value) ? 1 : width(value)); ++i)
        if (isInPairs(value))
          arena[home + i] = 16 * tensor[2 * i] + tensor[2 * i + 1];
        else
          arena[home + i * width(value)] = tensor[i];
  }
  values[value] = std::make_unique<RankTensors>(std::move(tensors));
  return true;
}

void Store::setElement(Value argument, RankTensors tensors, int64_t index) {
  elementOffsets[argument] = index * tensors[0].size() * width(argument);
  values[argument] = std::make_unique<RankTensors>(std::move(tensors));
}
