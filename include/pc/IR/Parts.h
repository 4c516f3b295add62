//===- Parts.h - The parameters in a packed parameter -----------------------===//
// A packed parameter holds several that were imported: q, k and v of one product, or the experts of a layer. Names,
// keys of random numbers and checkpoint tensors stay those of the parts, so checkpoints do not depend on packing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PARTS_H
#define PC_IR_PARTS_H

#include "pc/IR/PC.h"

namespace pc {

/// A parameter as it was imported, and where it lies in the parameter (without padding) that it is a part of now.
struct ParameterPart {
  llvm::StringRef name;
  int64_t key; ///< its place among all parameters as they were imported; of an ordinary parameter -1 if not known
  SourceAttr source;
  llvm::SmallVector<int64_t> start, size;
};

/// The shape of a parameter without padding, on all ranks together.
llvm::ArrayRef<int64_t> validShape(ParameterOp parameter);

/// The parts of a packed parameter, in order; an ordinary one is its only part.
llvm::SmallVector<ParameterPart> partsOf(ParameterOp parameter);

/// How many parameters were imported for this one.
int64_t numParts(ParameterOp parameter);

} // namespace pc

#endif
