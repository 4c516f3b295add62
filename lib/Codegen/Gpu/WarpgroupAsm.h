//===- WarpgroupAsm.h - Parses inline PTX of warpgroup products --------------------------------===//
// Input: the text of an inline PTX block. Result: its instructions, or std::nullopt if it has an unknown instruction.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_GPU_WARPGROUPASM_H
#define PC_LIB_CODEGEN_GPU_WARPGROUPASM_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Module.h"

#include <optional>

namespace pc::toolchain {

/// One instruction, with its operands as numbers in the text.
struct WarpgroupInstruction {
  enum Kind { ProxyFence, Fence, Product, Commit, Wait } kind;
  unsigned left = 0;              ///< Wait: groups that may still be in flight
  unsigned n = 0, flags = 0;      ///< Product: columns; pcrt_wgmma
  llvm::SmallVector<unsigned> d;  ///< Product: its sums
  llvm::SmallVector<unsigned> ab; ///< Product: A's registers or its descriptor, then B's
};

/// Parses a text that contains only fence.proxy.async, wgmma of bf16 into f32, and constant predicates. Returns
/// std::nullopt for any other text.
std::optional<llvm::SmallVector<WarpgroupInstruction>> parseWarpgroupAsm(llvm::StringRef text);

/// Whether the module uses wgmma, which only sm_90a has.
bool usesWarpgroups(const llvm::Module &module);

} // namespace pc::toolchain

#endif
