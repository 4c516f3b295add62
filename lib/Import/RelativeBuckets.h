//===- RelativeBuckets.h - Which bucket the distance of a key is in -----------------------===//
// Input: the length of a sequence and T5's two numbers. Result: a step function from distances to buckets, as the runs
// in which the bucket is constant. `pc.iota` takes it in this form.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_RELATIVEBUCKETS_H
#define PC_LIB_IMPORT_RELATIVEBUCKETS_H

#include "llvm/ADT/SmallVector.h"

namespace pc {

/// Buckets of T5 (C. Raffel et al., 2020): each short distance has one of its own, longer ones share one with those of
/// about the same logarithm, and from `farthest` on there is one for all. By index t - s + sequence - 1 of key t and
/// query s the bucket changes at few places: piece i has bucket values[i] from index pieces[i] on.
struct RelativeBuckets {
  llvm::SmallVector<int64_t> pieces, values;

  /// `bothWays`: keys after a query have the second half of the buckets; else they are as far as the query itself.
  RelativeBuckets(int64_t sequence, int64_t buckets, int64_t farthest, bool bothWays);
};

} // namespace pc

#endif
