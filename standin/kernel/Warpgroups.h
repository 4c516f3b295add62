//===- Warpgroups.h - Products of matrices by warpgroups of four warps ----===//
// wgmma.mma_async multiplies while the warpgroup continues. Here a product is computed as late as a wait allows; until
// then numbered NaNs stand for its results. So a program that uses results or changes operands too early gets wrong
// results with any order of threads. Semantics: PTX ISA, "asynchronous warpgroup level matrix instructions".
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_KERNEL_WARPGROUPS_H
#define PC_STANDIN_KERNEL_WARPGROUPS_H

#include "Worker.h"

#include <deque>

namespace pc::standin {

/// The product D (64 x n, f32) = A (64 x 16, bf16) B (16 x n, bf16), or D += A B.
struct WarpgroupProduct {
  uint32_t n, flags; ///< pcrt_wgmma
  uint32_t site;
};

/// The products that the warps of a block have started. The worker owns it. A fault ends the launch.
class Warpgroups {
public:
  explicit Warpgroups(Worker &worker) : worker(worker) {}

  void fence(Fiber *me);
  /// `in` has n / 2 sums of this lane, then A's four registers or its descriptor, then B's descriptor; `out` gets n / 2
  /// sums.
  void start(Fiber *me, WarpgroupProduct product, uint64_t *in, uint64_t *out);
  void commit(Fiber *me);
  /// Ends all groups except the last `left`, and replaces the NaNs in the lane's `count` slots by the results.
  void wait(Fiber *me, uint32_t left, uint64_t *slots, uint32_t count, uint32_t site);
  /// "" or the products for which the block's threads have not waited.
  std::string unfinished() const;

private:
  /// One warp's 16 rows of a product.
  struct Part : WarpgroupProduct {
    uint32_t number, group;
    uint32_t a[warpSize][4];
    std::vector<const uint8_t *> rowsOfA, ofB; ///< chunks of 16 bytes in shared memory
    std::vector<uint32_t> sums;                ///< n / 2 numbers per lane: sums before, results after
    bool done = false, claimed = false;
  };
  struct WarpState {
    std::deque<Part> parts; ///< in order: the last finished products, then the products in flight
    uint32_t group = 0, last = 0;
    uint32_t started = 0; ///< products, counted
  };
  /// A product that a warpgroup's first warp has started, and that the others must also start.
  struct Started {
    WarpgroupProduct product;
    uint64_t a, b;
  };

  Part *resultOf(WarpState &warp, uint32_t bits);
  void startWhole(Fiber *me, Warp &lanes, unsigned first, const WarpgroupProduct &product);
  void finish(Fiber *me, Part &part);
  void read(Fiber *me, const Part &part, bool done);
  std::vector<const uint8_t *> chunks(Fiber *me, const Part &part, uint64_t descriptor, bool transposed, unsigned from,
                                      unsigned rows) const;

  Worker &worker;
  WarpState warps[maxWarps];
  std::vector<Started> started[maxWarps / 4];
  bool ordered[maxThreads] = {}; ///< whether a fence came after the last time registers could change
};

} // namespace pc::standin

#endif
