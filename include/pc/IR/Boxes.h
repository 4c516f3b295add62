//===- Boxes.h - Whether parameters make up the tensors of a checkpoint ----------------------===//
// A checkpoint stores tensors under the names of the model's files; a parameter may be a box of such a tensor.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_BOXES_H
#define PC_IR_BOXES_H

#include "mlir/IR/BuiltinOps.h"

namespace pc {

/// Checks, in a program for one device, that the parameters together hold each element of their checkpoint tensors
/// exactly once. Otherwise a checkpoint cannot be written. Fails after an error that names the tensor, at a parameter
/// of this tensor.
llvm::LogicalResult checkBoxes(mlir::ModuleOp module);

} // namespace pc

#endif
