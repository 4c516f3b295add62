//===- Generation.cpp - Ops of programs that generate text -----------------------------------===//
// Verifies attention to a cache, and distinguishes steps that generate from steps that train.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/Generation.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.cpp.inc"

bool pc::trains(ModuleOp module) {
  bool updates = module.walk([](UpdateOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return updates && !module.walk([](CacheWriteOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Checks the window, the cap, and the number of entries of a bias.
LogicalResult CachedAttentionOp::verify() {
  if (std::optional<int64_t> window = getWindow(); window && *window < 1)
    return emitOpError() << "has a window of " << *window << " (C1)";
  if (std::optional<llvm::APFloat> cap = getSoftcap(); cap && !(cap->convertToDouble() > 0))
    return emitOpError() << "must have a positive cap (C2)";
  auto keys = cast<RankedTensorType>(getKeys().getType());
  if (Value bias = getBias(); bias && keys.getRank() == 5) {
    auto type = cast<RankedTensorType>(bias.getType());
    if (type.getRank() != 3 || type.getDimSize(2) != 2 * keys.getDimSize(3) - 1)
      return emitOpError() << "has a bias of type " << type << ", which does not fit " << keys.getDimSize(3)
                           << " positions (C3)";
  }
  return success();
}
