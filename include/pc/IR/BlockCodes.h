//===- BlockCodes.h - Values as codes of 8 bits with a scale per block -----------------------===//
// Includes the classes of the ops in PCBlockCodes.td.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_BLOCKCODES_H
#define PC_IR_BLOCKCODES_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCBlockCodesOps.h.inc"

namespace pc {
/// The sizes of a block: those of the value divided by those of its scales. Returns std::nullopt if they do not divide.
std::optional<llvm::SmallVector<int64_t>> blockOf(llvm::ArrayRef<int64_t> value, llvm::ArrayRef<int64_t> scales);
/// AdamW with both states in codes, as one kernel: it decodes a block of both, updates the parameter, and encodes them.
struct CodedAdamW {
  AdamWOp adamw;
  DecodeOp first, second;
  EncodeOp newFirst, newSecond;

  llvm::SmallVector<mlir::Operation *> ops() const { return {first, second, adamw, newFirst, newSecond}; }
};
/// The update around `adamw`, if its states are decoded for it alone, and encoded again by ops of the same block.
std::optional<CodedAdamW> codedAdamW(AdamWOp adamw);
/// Returns `fusion` as such a kernel, or std::nullopt.
std::optional<CodedAdamW> asCodedAdamW(FusionOp fusion);
} // namespace pc

#endif
