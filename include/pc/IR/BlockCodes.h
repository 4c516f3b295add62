//===- BlockCodes.h - Values as codes of 8 bits with a scale per block -----------------------===//
// Includes the classes of the ops in PCBlockCodes.td.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_BLOCKCODES_H
#define PC_IR_BLOCKCODES_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCBlockCodesOps.h.inc"

namespace pc {
/// Returns the size of a block in each dim: the value's size divided by the number of scales. Returns std::nullopt if a
/// division has a remainder.
std::optional<llvm::SmallVector<int64_t>> blockOf(llvm::ArrayRef<int64_t> value, llvm::ArrayRef<int64_t> scales);
/// Parameters of tensors with fewer elements have no codes, as in bitsandbytes.
inline constexpr int64_t fewestForCodes = 4096;
/// Returns the sizes of the blocks of a value of this shape that `fits` accepts: a square in its last dim and in the
/// longest other one, or else a part of a row. Their sizes divide those of the value. Returns std::nullopt if there are
/// none. Blocks do not depend on the plan, so every plan rounds the same elements together.
std::optional<llvm::SmallVector<int64_t>> chooseBlock(
    llvm::ArrayRef<int64_t> shape,
    llvm::function_ref<bool(llvm::ArrayRef<int64_t>)> fits = [](llvm::ArrayRef<int64_t>) { return true; });
/// Returns the shape of the scales of a value whose blocks have these sizes.
llvm::SmallVector<int64_t> shapeOfScales(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> block);
/// Whether the op rounds its operand, to another type or to codes. `op` may be null.
inline bool roundsOperand(mlir::Operation *op) { return llvm::isa_and_nonnull<CastOp, EncodeOp, EncodeScaledOp>(op); }
/// The op that decodes `value` from floats of 8 bits, or null.
DecodeOp float8Of(mlir::Value value);
/// Whether the einsum is a product of codes: in a fusion, it multiplies two operands that the fusion decodes from
/// floats of 8 bits.
bool multipliesCodes(EinsumOp product);
/// Whether a rank's part of a value of this type consists of whole blocks of these sizes.
bool hasWholeBlocks(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> block, MeshAttr mesh);
/// Returns the type of a stack of this number of addends of a local value of this shape, as codes
/// (`pc.encode_addend`).
mlir::RankedTensorType typeOfAddends(int64_t addends, llvm::ArrayRef<int64_t> shape, WireAttr wire);
/// Returns how the addend that `pc.encode_addend` made of `codes` is sent, also for the argument of a `pc.start`; null
/// for other values.
WireAttr wireOf(mlir::Value codes);
/// AdamW with both states in codes, as one kernel. The kernel decodes a block of both states, updates the parameter,
/// and encodes the states again.
struct CodedAdamW {
  AdamWOp adamw;
  DecodeOp first, second;
  EncodeOp newFirst, newSecond;

  llvm::SmallVector<mlir::Operation *> ops() const { return {first, second, adamw, newFirst, newSecond}; }
};
/// Returns the update around `adamw`, if its states are decoded only for `adamw` and encoded again by ops of the same
/// block.
std::optional<CodedAdamW> codedAdamW(AdamWOp adamw);
/// Returns `fusion` as a kernel of this kind, or std::nullopt.
std::optional<CodedAdamW> asCodedAdamW(FusionOp fusion);
} // namespace pc

#endif
