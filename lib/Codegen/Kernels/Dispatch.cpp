//===- Dispatch.cpp - Which ops have a special kernel --------------------------------===//
#include "Kernels.h"
#include "pc/IR/Workspace.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

unsigned pc::numSpecialKernels(Operation *op, bool simt) {
  if (simt && isa<EmbeddingGradOp, AttentionGradOp>(op))
    return 2;
  return isa<LayerNormGradOp, RMSNormGradOp>(op) ? 2 : 1;
}

int64_t pc::kernelWorkspaceBytes(Operation *op) {
  auto gradient = dyn_cast<AttentionGradOp>(op);
  return gradient ? attentionDotsBytes(gradient) : 0;
}

/// Special kernels read and write whole static tensors of f32, bf16 and i32.
static LogicalResult checkTypes(Operation *op) {
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    Type element = tensor.getElementType();
    if (!tensor.hasStaticShape() || !(element.isF32() || element.isBF16() || element.isInteger(32)))
      return op->emitOpError() << "has no CPU kernel for " << withEncoding(type, {})
                               << ": only static tensors of f32, bf16 and i32";
    if (tensor.getNumElements() == 0)
      return op->emitOpError() << "has no CPU kernel for the empty tensor " << withEncoding(type, {});
  }
  return success();
}

std::optional<LogicalResult> pc::emitSpecialKernel(Operation *op, Kernel &kernel) {
  return llvm::TypeSwitch<Operation *, std::optional<LogicalResult>>(op)
      .Case<AttentionOp, AttentionGradOp, LayerNormGradOp, RMSNormGradOp, EmbeddingOp, EmbeddingGradOp, AdamWOp, SGDOp,
            RopeOp, ResizeOp>(
          [&](auto special) -> LogicalResult {
            if constexpr (requires { special.getSees(); })
              if (special.getSees() && cast<RankedTensorType>(special.getSees().getType()).getRank() == 0)
                return special.emitOpError()
                       << "has a part of the queries; pc-window-moves makes steps of it that have kernels";
            return failed(checkTypes(op)) ? failure() : kernels::emit(special, kernel);
          })
      .Default([](Operation *) { return std::nullopt; });
}
