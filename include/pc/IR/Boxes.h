//===- Boxes.h - Whether parameters make up the tensors of a checkpoint ----------------------===//
// A checkpoint stores tensors under the names of the model's files; a parameter may be a box of such a tensor.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_BOXES_H
#define PC_IR_BOXES_H

#include "mlir/IR/BuiltinOps.h"

namespace pc {

/// Checks that the parameters of a program for one device contain each element of the tensors that they are stored in
/// exactly once. A checkpoint can be written only from such parameters. Fails after an error at a parameter that names
/// the tensor.
llvm::LogicalResult checkBoxes(mlir::ModuleOp module);

} // namespace pc

#endif
