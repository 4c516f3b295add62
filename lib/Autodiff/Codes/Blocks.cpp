//===- Blocks.cpp - The blocks of a parameter that share a scale ----------------------------===//
#include "Blocks.h"

#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/Parts.h"

using namespace mlir;
using namespace pc;

std::optional<SmallVector<int64_t>> pc::blockFor(ParameterOp parameter) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(parameter.getType()).getShape(),
                    ofTensor = partsOf(parameter)[0].source.getShape();
  if (isTable(parameter) || ofTensor.size() < 2 || ShapedType::getNumElements(ofTensor) < fewestForCodes)
    return std::nullopt;
  return chooseBlock(shape, [&](ArrayRef<int64_t> block) { return partsOfBlocks(parameter, block).has_value(); });
}
