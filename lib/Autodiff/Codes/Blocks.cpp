//===- Blocks.cpp - The blocks of a parameter that share a scale ----------------------------===//
#include "Blocks.h"

#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/Parts.h"
#include "pcrt/block_codes.h"

using namespace mlir;
using namespace pc;

/// With a square, both dims can be split among many ranks, and heads, of which there are few, are not divided into
/// blocks. If only the last dim is long enough, a block is a part of a row.
std::optional<SmallVector<int64_t>> pc::blockFor(ParameterOp parameter) {
  constexpr int64_t side = 16;
  static_assert(side * side == PCRT_STATE_BLOCK);
  ArrayRef<int64_t> shape = cast<RankedTensorType>(parameter.getType()).getShape(),
                    ofTensor = partsOf(parameter)[0].source.getShape();
  if (isTable(parameter) || shape.empty() || ofTensor.size() < 2 ||
      ShapedType::getNumElements(ofTensor) < fewestForCodes)
    return std::nullopt;
  const int64_t last = std::ssize(shape) - 1;
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, last));
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return shape[a] > shape[b]; });
  auto fits = [&](ArrayRef<int64_t> block) {
    return llvm::all_of(llvm::zip_equal(shape, block),
                        [](auto pair) { return std::get<0>(pair) % std::get<1>(pair) == 0; }) &&
           partsOfBlocks(parameter, block);
  };
  for (int64_t dim : order) {
    SmallVector<int64_t> block(shape.size(), 1);
    block[dim] = block[last] = side;
    if (fits(block))
      return block;
  }
  SmallVector<int64_t> row(shape.size(), 1);
  row[last] = PCRT_STATE_BLOCK;
  return fits(row) ? std::optional(row) : std::nullopt;
}
