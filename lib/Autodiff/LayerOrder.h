//===- LayerOrder.h - The ops of a model in the order of its layers --------------------------===//
// A model that is written in another order of ops, for example by another importer, must still be cut into stages.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_LAYERORDER_H
#define PC_LIB_AUTODIFF_LAYERORDER_H

#include "mlir/IR/Block.h"

namespace pc {

/// Puts the ops of a model layer by layer, as a pipeline cuts them: each layer after those that it reads, and what is
/// in no layer right after the last layer that it reads. Text that is in such an order already stays as it is, and so
/// does that of layers which read each other.
void sortByLayers(mlir::Block &model);

} // namespace pc

#endif
