//===- ReshapeSpec.h - One side of a reshape as names -----------------------------------===//
// "b (h w) c": dims whose names are b, h and w together, and c.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IR_RESHAPESPEC_H
#define PC_LIB_IR_RESHAPESPEC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace pc {

/// The names of each dim, major to minor.
using ReshapeDims = llvm::SmallVector<llvm::SmallVector<llvm::StringRef, 2>, 6>;
/// Reads one side of a spec; none if parentheses are nested, open or empty, or a name has other characters than
/// letters, digits and `_`.
std::optional<ReshapeDims> reshapeDims(llvm::StringRef side);

} // namespace pc
#endif
