//===- Boxes.h - Whether parameters make up the tensors of a checkpoint ----------------------===//
// A checkpoint stores tensors under the names of the model's files; a parameter may be a box of such a tensor.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_BOXES_H
#define PC_IR_BOXES_H

#include "mlir/IR/BuiltinOps.h"

namespace pc {

/// Whether the parameters of a program for one device have each element of the tensors that they are stored in, and
/// each once: a checkpoint is written only from them. Fails after an error at a parameter that names the tensor.
llvm::LogicalResult checkBoxes(mlir::ModuleOp module);

} // namespace pc

#endif
