//===- Generation.h - Ops of programs that generate text -------------------------------------===//
// Includes the classes of the ops in PCGeneration.td.
//===-----------------------------------------------------------------------------------------===//
#ifndef PC_IR_GENERATION_H
#define PC_IR_GENERATION_H

#include "pc/IR/PC.h"

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.h.inc"

namespace pc {
/// Whether a module has a step that generates text.
bool generates(mlir::ModuleOp module);

/// Whether a step changes parameters or states of an optimizer. A step that generates text changes only caches.
bool trains(mlir::ModuleOp module);

/// The sizes of a cache [b, n, k, t, d], or of one in parts, [r, b, n, k, t, d].
struct CacheSizes {
  explicit CacheSizes(llvm::ArrayRef<int64_t> shape) : parts(shape.size() == 6 ? shape.front() : 1) {
    shape = shape.take_back(5);
    batch = shape[0], slots = shape[1], heads = shape[2], context = shape[3], width = shape[4];
  }
  int64_t parts, batch, slots, heads, context, width; ///< `context`: positions of one part
};
} // namespace pc

#endif
