//===- Dispatch.cpp - Selects special kernels for ops --------------------------------===//
// The table of special kernels: the number of their parts, their workspace, and the function that writes them. Other
// ops become row kernels or plain loops (Host/KernelOf.cpp).
//===-----------------------------------------------------------------------------===//
#include "../Fuse/CodeProduct.h"
#include "../Fuse/Grouped.h"
#include "Attention/Attention.h"
#include "Coded/CodedProduct.h"
#include "Kernels.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Sharing.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

/// On a GPU the kernel of a bias's gradient comes after the kernels for q, k and v.
static constexpr unsigned biasGradPart = 2, biasGradResult = 3;

/// An op has several kernels if one needs all results of another one.
unsigned pc::numSpecialKernels(Operation *op, bool simt) {
  if (simt && isOnRows(op))
    return kernels::groupedParts(routedOnRows(op));
  auto fusion = dyn_cast<FusionOp>(op);
  if (simt && (isa<EmbeddingGradOp>(op) || (fusion && asTableSum(fusion))))
    return kernels::embeddingGradParts;
  if (simt && isAttentionGrad(op))
    return biasGradPart + (op->getNumResults() > biasGradResult);
  if (auto gradient = dyn_cast<RecurrenceGradOp>(op))
    return kernels::recurrenceGradParts(gradient);
  if (simt && isa<CachedAttentionOp>(op))
    return 2;
  return isa<LayerNormGradOp, RMSNormGradOp>(op) || (simt && columnSumBytes(op)) ? 2 : 1;
}

/// Memory that the kernels of one op share, in bytes.
int64_t pc::kernelWorkspaceBytes(Operation *op) {
  if (isAttentionGrad(op))
    return attentionDotsBytes(op);
  if (isa<CachedAttentionOp>(op))
    return cachedScoresBytes(op);
  if (isOnRows(op))
    return RowTables(routedOnRows(op)).bytes;
  auto fusion = dyn_cast<FusionOp>(op);
  std::optional<TableSum> sum = fusion ? asTableSum(fusion) : std::nullopt;
  if (auto embedding = sum ? sum->gradient : dyn_cast<EmbeddingGradOp>(op))
    return EmbeddingSort(embedding).bytes;
  return columnSumBytes(op);
}

/// Packed operands are several buffers at different offsets of one value.
SmallVector<int64_t> pc::pieceBytes(Operation *op, unsigned number) {
  return llvm::TypeSwitch<Operation *, SmallVector<int64_t>>(op)
      .Case<PackedAttentionOp, PackedAttentionGradOp>([&](auto attention) -> SmallVector<int64_t> {
        ArrayRef<int64_t> o = cast<RankedTensorType>(attention.getO().getType()).getShape();
        bool isGradient = isAttentionGrad(op) && number == op->getNumOperands();
        if (number && !isGradient)
          return {0};
        Value packed = isGradient ? op->getResult(0) : op->getOperand(0);
        int64_t head = o[4] * getElementTypeOrSelf(packed.getType()).getIntOrFloatBitWidth() / 8;
        return {0, o[3] * head, (o[3] + 1) * head};
      })
      .Default([](Operation *) { return SmallVector<int64_t>{0}; });
}

/// Emits attention or its gradient with one of the three functions.
template <typename OpT>
static LogicalResult emitOneOf(OpT op, Kernel &kernel, void (*onCpu)(kernels::AttentionShape, Kernel &),
                               bool (*simt)(const kernels::AttentionShape &, Kernel &),
                               void (*mma)(const kernels::AttentionShape &, Kernel &)) {
  kernels::AttentionShape a(op);
  if (!kernel.simt)
    return onCpu(a, kernel), success();
  if (kernel.part == biasGradPart)
    return kernels::emitBiasGrad(a, kernel), success();
  if (isForTensorCores(op->getOperand(0)))
    return mma(a, kernel), success();
  return simt(a, kernel) ? success() : op->emitOpError() << "has no CUDA kernel for this head size";
}
template <typename OpT> static LogicalResult emitForward(OpT op, Kernel &kernel) {
  return emitOneOf(op, kernel, kernels::emitAttention, kernels::emitSimtAttention, kernels::emitMmaAttention);
}
template <typename OpT> static LogicalResult emitBackward(OpT op, Kernel &kernel) {
  return emitOneOf(op, kernel, kernels::emitAttentionGrad, kernels::emitSimtAttentionGrad,
                   kernels::emitMmaAttentionGrad);
}
LogicalResult pc::kernels::emit(AttentionOp op, Kernel &kernel) { return emitForward(op, kernel); }
LogicalResult pc::kernels::emit(PackedAttentionOp op, Kernel &kernel) { return emitForward(op, kernel); }
LogicalResult pc::kernels::emit(AttentionGradOp op, Kernel &kernel) { return emitBackward(op, kernel); }
LogicalResult pc::kernels::emit(PackedAttentionGradOp op, Kernel &kernel) { return emitBackward(op, kernel); }

/// Checks that operands and results are static tensors of f32, bf16, i32 or codes, as special kernels require.
static LogicalResult checkTypes(Operation *op) {
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    Type element = tensor.getElementType();
    if (!tensor.hasStaticShape() || !(element.isF32() || element.isBF16() || element.isInteger(32) || isCode(element)))
      return op->emitOpError() << "has no CPU kernel for " << withEncoding(type, {})
                               << "; supported are static tensors of f32, bf16, i32 and, for weights, i8 and i4";
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

/// Returns std::nullopt if the op has no special kernel.
std::optional<LogicalResult> pc::emitSpecialKernel(Operation *op, Kernel &kernel) {
  if (kernel.simt && isa<LayerNormGradOp, RMSNormGradOp>(op))
    return std::nullopt; // a row kernel
  if (auto einsum = dyn_cast<EinsumOp>(op); einsum && isOnRows(op)) {
    auto emit = kernel.simt ? kernels::emitGrouped : kernels::emitPlainGrouped;
    return failed(checkTypes(op)) ? failure() : emit(einsum, kernel);
  }
  if (auto einsum = dyn_cast<EinsumOp>(op); einsum && isFloat8(getElementTypeOrSelf(einsum.getResult())))
    return failed(checkTypes(op)) ? failure() : kernels::emitTurnedCodes(einsum, kernel);
  return llvm::TypeSwitch<Operation *, std::optional<LogicalResult>>(op)
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp, LayerNormGradOp, RMSNormGradOp,
            EmbeddingOp, EmbeddingGradOp, AdamWOp, SGDOp, RopeOp, TopKOp, TopGroupsOp, AdmitOp, RoundOfRowsOp,
            ColumnsOp, StackOp, UnstackOp, ReshapeOp, RecurrenceOp, RecurrenceGradOp, SplitQkvOp, JoinQkvOp, ResizeOp,
            CacheWriteOp, CachedAttentionOp, GumbelOp, SamplingThresholdOp, EncodeOp, DecodeOp, EncodeScaledOp,
            EncodeAddendOp, DecodeSumOp>([&](auto special) -> LogicalResult {
        if constexpr (requires { special.getSees(); })
          if (special.getSees() && cast<RankedTensorType>(special.getSees().getType()).getRank() == 0)
            return special.emitOpError() << "has only a part of the queries; run pc-window-moves, which splits it into "
                                            "steps that have kernels";
        return failed(checkTypes(op)) ? failure() : kernels::emit(special, kernel);
      })
      .Case([&](FusionOp fusion) -> std::optional<LogicalResult> {
        if (kernels::isCodedProduct(fusion))
          return failed(checkTypes(op)) ? failure() : kernels::emitCodedProduct(fusion, kernel);
        if (std::optional<TiledCodes> codes = asTiledCodes(fusion))
          return failed(checkTypes(op)) ? failure() : kernels::emitTiledCodes(*codes, kernel);
        if (std::optional<CodedAdamW> coded = asCodedAdamW(fusion))
          return kernels::emitCodedAdamW(fusion, *coded, kernel);
        std::optional<TableSum> sum = asTableSum(fusion);
        return sum ? std::optional(emitTableSum(*sum, kernel)) : std::nullopt;
      })
      .Default([](Operation *) { return std::nullopt; });
}
