//===- Gemm.h - The matrix products of a program on the CPU ---------------===//
// Every product is cut over the batch, the rows or the columns, never over k, and each thread of the pool calls oneDNN
// on its part by itself. What oneDNN does not take (k = 0, odd strides) a plain loop does.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_GEMM_H
#define PCRT_CPU_GEMM_H

#include "cpu/Grouped.h"
#include "cpu/Pool.h"
#include "pcrt/pcrt.h"

#include <memory>
#include <vector>

namespace pcrt {

/// Checks a descriptor: null, or what is wrong with it.
const char *checkGemm(const pcrt_gemm_desc &desc);

/// All products of a program. Everything is made at construction; running one allocates nothing from the heap.
class Gemms {
public:
  /// `descs` have passed checkGemm. `nativeBf16`: as of Matmul.
  Gemms(Pool &pool, const pcrt_gemm_desc *descs, int count, bool nativeBf16);
  ~Gemms();

  /// Runs product `index` as pcrt_gemm describes it and waits. False with a reason in `error` if oneDNN failed.
  bool run(int index, const void *a, const void *b, void *c, const void *bias, const void *mask, const char **error);

  /// Runs every distinct product once on `bytes` bytes of zeros (which stay zeros): oneDNN generates some of its code
  /// on the first call.
  void warmUp(void *zeros, int64_t bytes);

  /// Scratch memory of all threads, in bytes.
  int64_t scratchBytes() const { return totalScratch + grouped.scratchBytes(); }

  /// Products that run in the plain loop (of all parts of all descriptors); 0 where the CPU has what it needs.
  int plainParts() const { return numPlain + grouped.plainParts(); }

  /// What products on rows had to do.
  const RowTally &rows() const { return grouped.rows(); }

private:
  struct Part;
  struct Plan;
  struct ThreadState;

  std::unique_ptr<Plan> makePlan(const pcrt_gemm_desc &desc, bool nativeBf16);

  Pool &pool;
  int firstRegion; ///< Memory for oneDNN's small allocations (Allocations.h), by thread.
  std::vector<std::unique_ptr<ThreadState>> threads;
  std::vector<std::unique_ptr<Plan>> plans; ///< One per distinct descriptor.
  std::vector<Plan *> planOf;               ///< By index of the program's table.
  GroupedProducts grouped;
  int64_t totalScratch = 0;
  int numPlain = 0;
  bool warmingUp = false; ///< What oneDNN allocates now may stay: it comes from the heap.
};

} // namespace pcrt

#endif // PCRT_CPU_GEMM_H
