//===- Blocks.h - The blocks of a parameter that share a scale ------------------------------===//
// They do not depend on the plan, so every plan rounds the same elements together.
//===---------------------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_CODES_BLOCKS_H
#define PC_LIB_AUTODIFF_CODES_BLOCKS_H

#include "pc/IR/BlockCodes.h"

namespace pc {

/// The sizes of the blocks of a parameter: a square in its last dim and in one other, or a part of a row. Nothing for
/// tables that an embedding reads, vectors, small parameters, and parameters whose dims blocks do not divide.
std::optional<llvm::SmallVector<int64_t>> blockFor(ParameterOp parameter);

} // namespace pc

#endif
