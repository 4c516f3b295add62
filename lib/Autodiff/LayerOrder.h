//===- LayerOrder.h - The ops of a model in the order of its layers --------------------------===//
// After sorting, a model can be divided into stages even if its ops were in another order, for example because another
// importer wrote it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_LAYERORDER_H
#define PC_LIB_AUTODIFF_LAYERORDER_H

#include "mlir/IR/Block.h"

namespace pc {

/// Sorts the ops of a model by layer, as pipelines need: each layer comes after the layers that it reads, and ops
/// outside of layers come right after the last layer that they read. A program that is already in such an order does
/// not change, and neither does one in which layers read each other.
void sortByLayers(mlir::Block &model);

} // namespace pc

#endif
