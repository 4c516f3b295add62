//===- Parts.h - The parameters in a packed parameter -----------------------===//
// A packed parameter holds several imported ones: q, k and v of one product, or the experts of a layer. Names, keys of
// random numbers and checkpoint tensors remain those of the parts, so checkpoints do not depend on packing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PARTS_H
#define PC_IR_PARTS_H

#include "pc/IR/PC.h"

namespace pc {

/// An imported parameter that was packed into a larger one, and its position there. Padding does not count.
struct ParameterPart {
  llvm::StringRef name;
  int64_t key; ///< its number among all imported parameters; may be -1 (not known) if the parameter is not packed
  SourceAttr source;
  llvm::SmallVector<int64_t> start, size;
};

/// The shape of a parameter without padding, on all ranks together.
llvm::ArrayRef<int64_t> validShape(ParameterOp parameter);

/// The parts of a packed parameter, in order. A parameter that is not packed is its only part.
llvm::SmallVector<ParameterPart> partsOf(ParameterOp parameter);

/// How many parameters were imported for this one.
int64_t numParts(ParameterOp parameter);

} // namespace pc

#endif
