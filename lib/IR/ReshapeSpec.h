//===- ReshapeSpec.h - One side of a reshape as names -----------------------------------===//
// In "b (h w) c", the second dim is h and w merged. Its names are h and w, and the other dims are b and c.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IR_RESHAPESPEC_H
#define PC_LIB_IR_RESHAPESPEC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace pc {

/// The names of each dim, from major to minor.
using ReshapeDims = llvm::SmallVector<llvm::SmallVector<llvm::StringRef, 2>, 6>;
/// Reads one side of a spec. Returns std::nullopt if parentheses are nested, not closed or empty, or if a name contains
/// anything but letters, digits and `_`.
std::optional<ReshapeDims> reshapeDims(llvm::StringRef side);

} // namespace pc
#endif
