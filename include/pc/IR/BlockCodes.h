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
/// The shape of the scales of a value, whose blocks have these sizes.
llvm::SmallVector<int64_t> shapeOfScales(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> block);
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
