//===- Dispatch.cpp - Which ops have a special kernel --------------------------------===//
#include "Kernels.h"
#include "pc/IR/Sharing.h"
#include "pc/IR/Workspace.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

unsigned pc::numSpecialKernels(Operation *op, bool simt) {
  auto fusion = dyn_cast<FusionOp>(op);
  if (simt && (isa<EmbeddingGradOp>(op) || (fusion && asTableSum(fusion))))
    return kernels::embeddingGradParts;
  if (simt && isa<AttentionGradOp>(op))
    return 2;
  return isa<LayerNormGradOp, RMSNormGradOp>(op) || (simt && columnSumBytes(op)) ? 2 : 1;
}

int64_t pc::kernelWorkspaceBytes(Operation *op, unsigned part) {
  if (part == inOneKernel)
    return 0;
  if (auto gradient = dyn_cast<AttentionGradOp>(op))
    return attentionDotsBytes(gradient);
  auto fusion = dyn_cast<FusionOp>(op);
  std::optional<TableSum> sum = fusion ? asTableSum(fusion) : std::nullopt;
  if (auto embedding = sum ? sum->gradient : dyn_cast<EmbeddingGradOp>(op))
    return EmbeddingSort(embedding).bytes;
  return columnSumBytes(op);
}

/// Checks that operands and results are static tensors of f32, bf16 or i32, as special kernels require.
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

/// Emits the kernel of an embedding's gradient with the buffers of the fusion that contains it.
static LogicalResult emitTableSum(TableSum sum, Kernel &kernel) {
  kernels::Ptr base = kernel.operands[sum.base.getArgNumber()];
  kernel.operands = llvm::map_to_vector(sum.gradient->getOperands(), [&](Value operand) {
    return kernel.operands[cast<BlockArgument>(operand).getArgNumber()];
  });
  return failed(checkTypes(sum.gradient)) ? failure() : kernels::emit(sum.gradient, kernel, base);
}

std::optional<LogicalResult> pc::emitSpecialKernel(Operation *op, Kernel &kernel) {
  if (kernel.simt && isa<LayerNormGradOp, RMSNormGradOp>(op))
    return std::nullopt; // a kernel of rows
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
      .Case([&](FusionOp fusion) -> std::optional<LogicalResult> {
        std::optional<TableSum> sum = asTableSum(fusion);
        return sum ? std::optional(emitTableSum(*sum, kernel)) : std::nullopt;
      })
      .Default([](Operation *) { return std::nullopt; });
}
