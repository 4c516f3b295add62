//===- Buckets.h - A bound where no exact answer is to be had -------------===//
#ifndef PC_BENCH_IOPDDL_BUCKETS_H
#define PC_BENCH_IOPDDL_BUCKETS_H

#include "Graph.h"

namespace iopddl {

/// What no assignment of `choices[v]` to each variable v has less than, in the sum of `tables`; and an assignment that
/// is good by it. Exact if no table has to be larger than `limit` entries; otherwise sums of tables that would be are
/// minimized apart (R. Dechter and I. Rish, "Mini-buckets", J. ACM 50, 2003).
struct Bounded {
  pc::Price bound;
  Choice choice;
};
Bounded boundedMinimum(llvm::ArrayRef<unsigned> choices, std::vector<pc::PriceTable> tables, size_t limit);

} // namespace iopddl

#endif
