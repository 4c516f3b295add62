//===- Parts.cpp - The parameters in a packed parameter -------------------------===//
// A parameter of experts packs one tensor per expert along a dim. Readers that care about checkpoints, keys of random
// numbers or names see its parts; a parameter that is not packed has one part, itself.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Parts.h"

using namespace mlir;
using namespace pc;

ArrayRef<int64_t> pc::validShape(ParameterOp parameter) {
  if (parameter.getValid())
    return *parameter.getValid();
  return parameter.getGlobal() ? *parameter.getGlobal()
                               : cast<RankedTensorType>(parameter.getValue().getType()).getShape();
}

int64_t pc::numParts(ParameterOp parameter) { return parameter.getParts() ? parameter.getParts()->size() : 1; }

/// Parts follow each other along one dim.
SmallVector<ParameterPart> pc::partsOf(ParameterOp parameter) {
  SmallVector<int64_t> size(validShape(parameter)), start(size.size(), 0);
  if (!parameter.getParts()) {
    int64_t key = parameter.getKey() ? static_cast<int64_t>(*parameter.getKey()) : -1;
    return {{parameter.getName(), key, *parameter.getSource(), start, size}};
  }
  SmallVector<ParameterPart> parts;
  auto along = static_cast<int64_t>(*parameter.getAlong());
  for (PartAttr part : parameter.getParts()->getAsRange<PartAttr>()) {
    size[along] = part.getSize();
    parts.push_back({part.getName(), part.getKey(), part.getSource(), start, size});
    start[along] += part.getSize();
  }
  return parts;
}
