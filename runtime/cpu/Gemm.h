//===- Gemm.h - The matrix products of a program on the CPU ---------------===//
// Every product is cut over the batch, the rows or the columns, and never over k, so that results do not depend on the
// number of threads. Each thread of the pool calls oneDNN for its own part. A plain loop computes the products that
// oneDNN does not support (k = 0, odd strides).
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_GEMM_H
#define PCRT_CPU_GEMM_H

#include "cpu/Grouped.h"
#include "cpu/Pool.h"
#include "pcrt/pcrt.h"

#include <memory>
#include <vector>

namespace pcrt {

/// Checks a descriptor. Returns null, or the error.
const char *checkGemm(const pcrt_gemm_desc &desc);

/// All products of a program. The constructor allocates everything; running a product allocates nothing from the heap.
/// The owner of the pool calls it, one product at a time.
class Gemms {
public:
  /// `descs` must have passed checkGemm. `nativeBf16` has the same meaning as in Matmul. If `rowsAlike` is true, the
  /// bits of a row of c depend only on the same row of a and on b, and not on the row's number. Programs that generate
  /// text need this: rows are tokens of requests, and an answer must not depend on other requests. Products of few rows
  /// then read b once (ThinProduct).
  Gemms(Pool &pool, const pcrt_gemm_desc *descs, int count, bool nativeBf16, bool rowsAlike = false);
  ~Gemms();

  /// Runs product `index` as pcrt_gemm describes it and waits. Returns false, with a reason in `error`, if oneDNN
  /// failed.
  bool run(int index, const void *a, const void *b, void *c, const void *bias, const void *aux, const char **error);

  /// Runs every distinct product once on `bytes` bytes of zeros, which stay zeros, because oneDNN generates some of its
  /// code on the first call.
  void warmUp(void *zeros, int64_t bytes);

  /// Scratch memory of all threads, in bytes.
  int64_t scratchBytes() const { return totalScratch + grouped.scratchBytes(); }

  /// The number of parts, over all descriptors, that run in the plain loop; 0 if oneDNN supports all of them.
  int plainParts() const { return numPlain + grouped.plainParts(); }

  /// Counts of the rows of grouped products so far.
  const RowTally &rows() const { return grouped.rows(); }

private:
  struct Part;
  struct Plan;
  struct ThreadState;

  std::unique_ptr<Plan> makePlan(const pcrt_gemm_desc &desc, bool nativeBf16);

  Pool &pool;
  const bool rowsAlike;
  int firstRegion; ///< Thread 0's region for oneDNN's allocations (Allocations.h); others follow.
  std::vector<std::unique_ptr<ThreadState>> threads;
  std::vector<std::unique_ptr<Plan>> plans; ///< One per distinct descriptor.
  std::vector<Plan *> planOf;               ///< The plan of each entry of the program's table.
  GroupedProducts grouped;
  int64_t totalScratch = 0;
  int numPlain = 0;
  bool warmingUp = false; ///< oneDNN may now allocate from the heap memory that it keeps.
};

} // namespace pcrt

#endif // PCRT_CPU_GEMM_H
