//===- Worker.h - The fibers of the running block -------------------------===//
// Each host thread has one worker: the threads of one block are fibers that switch to each other when they wait. This
// header is private to the kernel library.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_KERNEL_WORKER_H
#define PC_STANDIN_KERNEL_WORKER_H

#include "AccessChecker.h"
#include "Kernel.h"

#include <csetjmp>
#include <memory>
#include <vector>

namespace pc::standin {

constexpr unsigned maxThreads = 1024, warpSize = 32, maxWarps = maxThreads / warpSize;
constexpr unsigned stackBytes = 128 << 10; ///< the stack of a fiber; its lowest page is not accessible
/// Static and dynamic shared memory with the gaps between variables.
constexpr unsigned sharedCapacity = maxSharedBytes + (64 << 10);
constexpr uint32_t noSite = ~0u;

enum class Waits : uint8_t { No, Barrier, Warp, Done };

struct Worker;
/// A thread of the running block.
struct Fiber {
  pcrt_host_thread thread; // must be first, because generated code's pointer to it is a pointer to the fiber
  Worker *worker;
  void *stack;     ///< where it continues
  uint64_t result; ///< the result of a shuffle
  uint32_t site;   ///< where it waits
  Waits waits;
};

/// The operands of a warp's lanes for the collective at which they wait.
struct Warp {
  uint32_t arrived, needed, site;
  uint32_t value[warpSize], lane[warpSize], clamp[warpSize];
  uint64_t *in[warpSize], *out[warpSize];
};

/// A cp.async that has not been completed.
struct AsyncCopy {
  uint8_t *to;
  const uint8_t *from;
  uint32_t bytes, source, site, group;
};

/// The copies of one thread that no wait has demanded yet.
struct AsyncCopies {
  std::vector<AsyncCopy> pending;
  uint32_t group = 0;
};

class Warpgroups;

/// The alignment of shared memory, because matrix descriptors have only the low bits of an address.
constexpr size_t sharedAlignment = size_t(1) << 18;

/// Runs launches. It owns the stacks and the shared memory, and reuses them for every block.
struct Worker {
  Fiber *fibers;
  uint8_t *stacks, *shared;
  Warp warps[maxWarps];
  std::vector<AsyncCopies> copies;
  std::unique_ptr<Warpgroups> warpgroups; ///< the warpgroups of the block; null if it has not started a product
  void *mainStack;
  std::vector<bool> started;
  uint16_t queue[2 * maxThreads]; ///< runnable fibers, a ring
  unsigned head, tail;
  unsigned threads, done, arrived; ///< numbers of threads: all, returned ones, ones that wait at the barrier
  uint64_t random;
  std::string fault;
  const KernelLaunch *launch;
  uint32_t sharedBytes; ///< the shared memory of this launch's layout
  bool plain;           ///< the kernel never waits, so it runs without fibers
  jmp_buf leave;

  Worker();
  ~Worker();
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  /// Runs all blocks; returns the fault or "".
  std::string run(const KernelLaunch &launch);
  void push(unsigned thread) { queue[tail++ % (2 * maxThreads)] = uint16_t(thread); }
  unsigned index(const Fiber *fiber) const { return unsigned(fiber - fibers); }
  /// Switches to the next runnable fiber; returns when `me` runs again.
  void yield(Fiber *me);
  /// Ends the launch with a fault of this thread.
  [[noreturn]] void fail(Fiber *me, std::string text);
  void fiberReturned(Fiber *me);
  std::string siteText(uint32_t site) const;
  /// Calls f(0) .. f(n - 1) in the launch's order.
  template <class F> void inOrder(unsigned n, F f) {
    if (launch->order < 2) {
      for (unsigned i = 0; i < n; ++i)
        f(launch->order ? n - 1 - i : i);
      return;
    }
    unsigned power = 1; // i -> i * a + b modulo a power of two, a odd, is a permutation
    while (power < n)
      power *= 2;
    unsigned a = unsigned(draw()) | 1, b = unsigned(draw());
    for (unsigned i = 0; i < power; ++i)
      if (unsigned j = (i * a + b) & (power - 1); j < n)
        f(j);
  }

private:
  uint64_t draw();
  void enter(unsigned thread);
  void freshStack(unsigned thread);
  void runBlock(unsigned block);
  std::string deadlock() const;
  uint8_t *sharedReserved;
};

inline Fiber *fiberOf(pcrt_host_thread *thread) { return reinterpret_cast<Fiber *>(thread); }

} // namespace pc::standin

extern "C" {
/// The running thread; null outside of kernels.
extern __thread pcrt_host_thread *pc_thread __attribute__((tls_model("initial-exec")));
void pc_access(pcrt_host_thread *thread, const void *address, uint32_t bytes, uint32_t kind, uint64_t value,
               uint32_t site);
}

#endif
