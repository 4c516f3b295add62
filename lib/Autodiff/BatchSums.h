//===- BatchSums.h - Whether a model can be computed by microbatches -------------------------===//
// The loss of a step is the sum of the losses of its microbatches. That is the model's loss if it is a sum over the
// sequences of the batch, each by itself.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_BATCHSUMS_H
#define PC_LIB_AUTODIFF_BATCHSUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/DimClasses.h"

#include <set>

namespace pc {

/// The classes of dims that are the batch: the first dims of the inputs that have a number for each token.
std::set<unsigned> batchClasses(mlir::func::FuncOp model, DimClasses &classes);

/// Whether the results of the microbatches of `model` are parts of the result of the whole batch; fails after an error
/// at the op that is in the way. An output of kind loss that says `per_microbatch` may be any function of its
/// microbatch.
llvm::LogicalResult checkBatchSums(mlir::func::FuncOp model, DimClasses &classes, const std::set<unsigned> &batch,
                                   int64_t microbatches);

} // namespace pc

#endif
