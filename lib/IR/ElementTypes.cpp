//===- ElementTypes.cpp - Verifies the element types of ops ------------------------===//
// This file checks four constraints. (T1) Data are f32, bf16 or f64 (f64 only for the interpreter), and indices are
// i32. (T2) statistics and optimizer states are not bf16. The table lists the operands and results that are not data,
// for all ops with factors. (T3) Only einsums that multiply codes with their scales or transpose codes, ops that code
// blocks, and views have codes. (T4) A view or a transposition of codes keeps the element type.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Generation.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {
/// Numbers of the operands and results that are indices (T1) or wide, that is, not bf16 (T2).
struct Kinds {
  SmallVector<unsigned, 4> indexOperands, wideOperands, indexResults, wideResults;
};
} // namespace

/// The operands and results that do not have the op's float type: integers, and values that are always f32.
static Kinds kindsOf(Operation *op) {
  auto from = [&](unsigned first) { return llvm::to_vector<4>(llvm::seq(first, op->getNumOperands())); };
  // The lists are: integer operands, f32 operands, integer results, f32 results.
  return llvm::TypeSwitch<Operation *, Kinds>(op)
      .Case([](EinsumOp x) { return isDecoding(x) ? Kinds{{}, {1}, {}, {0}} : Kinds(); })
      .Case([](IotaOp) { return Kinds{{0}, {}, {0}, {}}; })
      .Case<SoftmaxOp, TopKOp, TopGroupsOp, AdmitOp, RoundOfRowsOp>([](auto) { return Kinds{{}, {}, {}, {0}}; })
      .Case<EmbeddingOp, EmbeddingGradOp>([](auto) { return Kinds{{1, 2}, {}, {}, {}}; })
      .Case([](LayerNormOp) { return Kinds{{}, {}, {}, {1, 2}}; })
      .Case([](LayerNormGradOp) { return Kinds{{}, {2, 3}, {}, {}}; })
      .Case([](RMSNormOp) { return Kinds{{}, {}, {}, {1}}; })
      .Case([](RMSNormGradOp) { return Kinds{{}, {2}, {}, {}}; })
      .Case([&](AttentionOp x) { return Kinds{from(3 + !!x.getBias() + x.hasSinks()), {}, {}, {1}}; })
      .Case([&](AttentionGradOp x) { return Kinds{from(x.getBias() ? 7 : 6), {4}, {}, {3}}; })
      .Case([&](DropoutOp) { return Kinds{from(1), {}, {}, {}}; })
      .Case([](PackedAttentionOp) { return Kinds{{}, {}, {}, {1}}; })
      .Case([](PackedAttentionGradOp) { return Kinds{{}, {2}, {}, {}}; })
      .Case([](MergeAttentionOp) { return Kinds{{}, {1, 3}, {}, {1}}; })
      .Case([](KeyCountsOp) { return Kinds{{0}, {}, {0}, {}}; })
      .Case([](CrossEntropyOp) { return Kinds{{1}, {}, {}, {0}}; })
      .Case([](SumExpOp) { return Kinds{{}, {1}, {}, {0}}; })
      .Case([](PickOp) { return Kinds{{1, 2}, {}, {}, {}}; })
      .Case([](CrossEntropyGradOp) { return Kinds{{3, 5}, {1, 2}, {}, {}}; })
      .Case([](RecurrenceOp) { return Kinds{{}, {0}, {}, {}}; })
      .Case([](RecurrenceGradOp) { return Kinds{{}, {0}, {}, {0}}; })
      .Case([](MaskPaddingOp) { return Kinds{{1}, {}, {}, {}}; })
      .Case([](ClipCoefficientOp) { return Kinds{{}, {0, 1}, {}, {0}}; })
      .Case([](AdamWOp) { return Kinds{{}, {0, 2, 3, 4, 5}, {}, {0, 1, 2}}; })
      .Case([](SGDOp) { return Kinds{{}, {0, 2, 3}, {}, {0}}; })
      .Case([](EncodeOp) { return Kinds{{}, {}, {}, {1}}; })
      .Case<DecodeOp, EncodeScaledOp>([](auto) { return Kinds{{}, {1}, {}, {}}; })
      .Case([](Float8ScaleOp) { return Kinds{{}, {0}, {}, {0}}; })
      .Case([](CacheWriteOp x) {
        return Kinds{x.getOffset() ? SmallVector<unsigned, 4>{2, 3, 4} : SmallVector<unsigned, 4>{2, 3}, {}, {}, {}};
      })
      .Case([](CachedAttentionOp x) {
        SmallVector<unsigned, 4> indices = {3, 4};
        if (x.getOffset())
          indices.push_back(x->getNumOperands() - 1);
        return Kinds{indices, {}, {}, {1}};
      })
      .Case([](GumbelOp x) {
        return Kinds{x.getAbove() ? SmallVector<unsigned, 4>{2, 4} : SmallVector<unsigned, 4>{2, 3}, {1}, {}, {0}};
      })
      .Case([](SamplingThresholdOp) { return Kinds{{}, {1}, {}, {0}}; })
      .Default([](Operation *) { return Kinds(); });
}

/// All operands and results that are not in the table of exceptions must have the same float type. A cast may change
/// it, and a view may also have indices.
LogicalResult pc::detail::verifyElementTypes(Operation *op) {
  Kinds kinds = kindsOf(op);
  bool cast = isa<CastOp>(op), view = isa<ColumnsOp, ReshapeOp>(op);
  auto einsum = dyn_cast<EinsumOp>(op);
  auto isOfCodes = [](Type type) { return isCode(getElementTypeOrSelf(type)); };
  const bool copies = (isa<CopyOp>(op) || (einsum && isTransposition(einsum))) &&
                      isOfCodes(op->getOperand(0).getType()) && isOfCodes(op->getResult(0).getType());
  view |= copies && einsum;
  const bool readsCodes = (einsum && isDecoding(einsum)) || isa<DecodeOp>(op) || copies,
             makesCodes = isa<EncodeOp, EncodeScaledOp>(op) || copies;
  auto check = [&](StringRef what, unsigned i, Type type, ArrayRef<unsigned> indices,
                   ArrayRef<unsigned> wide) -> LogicalResult {
    Type element = mlir::cast<RankedTensorType>(type).getElementType();
    bool isIndex = element.isInteger(32), isWide = element.isF32() || element.isF64();
    if (llvm::is_contained(indices, i) && !isIndex)
      return op->emitOpError() << what << " " << i << " must be i32, got " << type << " (T1)";
    if (llvm::is_contained(wide, i) && !isWide)
      return op->emitOpError() << what << " " << i << " must be f32, got " << type << " (T2)";
    if (!llvm::is_contained(indices, i) && !isWide && !element.isBF16() && !((cast || view) && isIndex))
      return op->emitOpError() << what << " " << i << " must be f32 or bf16, got " << type << " (T1)";
    return success();
  };
  if (view && getElementTypeOrSelf(op->getOperand(0)) != getElementTypeOrSelf(op->getResult(0)))
    return op->emitOpError() << "changes the element type from " << op->getOperand(0).getType() << " to "
                             << op->getResult(0).getType() << " (T4)";
  for (auto [i, type] : llvm::enumerate(op->getOperandTypes()))
    if (!(readsCodes && i == 0) && failed(check("operand", i, type, kinds.indexOperands, kinds.wideOperands)))
      return failure();
  for (auto [i, type] : llvm::enumerate(op->getResultTypes()))
    if (!(makesCodes && i == 0) && failed(check("result", i, type, kinds.indexResults, kinds.wideResults)))
      return failure();
  return success();
}
