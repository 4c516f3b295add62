//===- Workspace.cpp - Memory that library calls of a CUDA program need -------------------===//
#include "pc/IR/Workspace.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;

AttentionWorkspace::AttentionWorkspace(AttentionGradOp op) {
  auto floats = [](Value value) {
    return llvm::alignTo(cast<RankedTensorType>(value.getType()).getNumElements() * 4, cudaAlignment);
  };
  doDotO = dqAccumulator + floats(op.getQ());
  scratch = doDotO + floats(op.getLse());
  bytes = scratch + libraryScratchBytes;
}

int64_t pc::libraryWorkspaceBytes(Operation *step) {
  int64_t bytes = 0;
  step->walk([&](Operation *op) {
    if (isa<EinsumOp, AttentionOp>(op))
      bytes = std::max(bytes, libraryScratchBytes);
    if (auto gradient = dyn_cast<AttentionGradOp>(op))
      bytes = std::max(bytes, AttentionWorkspace(gradient).bytes);
  });
  return bytes;
}
