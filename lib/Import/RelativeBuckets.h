//===- RelativeBuckets.h - Buckets of relative positions ----------------------------------===//
// Input: the length of a sequence and T5's two numbers. Result: a step function from distances to buckets, as the runs
// in which the bucket is constant. `pc.iota` has this form as an attribute.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_RELATIVEBUCKETS_H
#define PC_LIB_IMPORT_RELATIVEBUCKETS_H

#include "llvm/ADT/SmallVector.h"

namespace pc {

/// Buckets of T5 (C. Raffel et al., 2020): each short distance has its own bucket, longer distances share a bucket if
/// their logarithms are about the same, and all distances from `farthest` on share one bucket. As a function of the
/// index t - s + sequence - 1 of key t and query s, the bucket changes at few places: it is values[i] from index
/// pieces[i] on.
struct RelativeBuckets {
  llvm::SmallVector<int64_t> pieces, values;

  /// If `bothWays` is true, keys after a query have the second half of the buckets. Otherwise they have distance 0.
  RelativeBuckets(int64_t sequence, int64_t buckets, int64_t farthest, bool bothWays);
};

} // namespace pc

#endif
