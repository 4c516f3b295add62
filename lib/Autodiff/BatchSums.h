//===- BatchSums.h - Whether a model can be computed by microbatches -------------------------===//
// The loss of a step is the sum of the losses of its microbatches. This equals the model's loss if the loss is a sum
// over the sequences of the batch, and the sequences do not depend on each other.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_BATCHSUMS_H
#define PC_LIB_AUTODIFF_BATCHSUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/DimClasses.h"

#include <set>

namespace pc {

/// The classes of dims that are the batch: the first dims of the inputs with one number per token.
std::set<unsigned> batchClasses(mlir::func::FuncOp model, DimClasses &classes);

/// Whether the results of the microbatches of `model` are parts of the result of the whole batch; fails after an error
/// at the op that prevents this. An output of kind loss with the attribute `per_microbatch` may be any function of its
/// microbatch.
llvm::LogicalResult checkBatchSums(mlir::func::FuncOp model, DimClasses &classes, const std::set<unsigned> &batch,
                                   int64_t microbatches);

} // namespace pc

#endif
