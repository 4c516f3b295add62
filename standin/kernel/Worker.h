//===- Worker.h - The fibers of the running block -------------------------===//
// One worker a host thread: the threads of one block as fibers that hand on to each other where they wait. Private to
// the kernel library.
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
constexpr unsigned stackBytes = 128 << 10; ///< of a fiber; the lowest page is not accessible
/// Static and dynamic shared memory with the gaps between variables.
constexpr unsigned sharedCapacity = maxSharedBytes + (64 << 10);
constexpr uint32_t noSite = ~0u;

enum class Waits : uint8_t { No, Barrier, Warp, Done };

struct Worker;
struct Fiber {
  pcrt_host_thread thread; // first: generated code's pointer to it is a pointer to the fiber
  Worker *worker;
  void *stack;     ///< where it goes on
  uint64_t result; ///< of a shuffle
  uint32_t site;   ///< where it waits
  Waits waits;
};

/// What the lanes of a warp bring to the collective that they are at.
struct Warp {
  uint32_t arrived, needed, site;
  uint32_t value[warpSize], lane[warpSize], clamp[warpSize];
  uint64_t *in[warpSize], *out[warpSize];
};

struct AsyncCopy {
  uint8_t *to;
  const uint8_t *from;
  uint32_t bytes, source, site, group;
};

/// Copies of one thread that no wait has demanded yet.
struct AsyncCopies {
  std::vector<AsyncCopy> pending;
  uint32_t group = 0;
};

class Warpgroups;

/// Descriptors of matrices have the low bits of an address in shared memory, which begins at a multiple of this.
constexpr size_t sharedAlignment = size_t(1) << 18;

struct Worker {
  Fiber *fibers;
  uint8_t *stacks, *shared;
  Warp warps[maxWarps];
  std::vector<AsyncCopies> copies;
  std::unique_ptr<Warpgroups> warpgroups; ///< of the block; null: it has multiplied nothing
  void *mainStack;
  std::vector<bool> started;
  uint16_t queue[2 * maxThreads]; ///< runnable fibers, a ring
  unsigned head, tail;
  unsigned threads, done, arrived; ///< of the block: its size, how many returned, how many wait at the barrier
  uint64_t random;
  std::string fault;
  const KernelLaunch *launch;
  uint32_t sharedBytes; ///< of this launch's layout
  bool plain;           ///< no fibers: the kernel never waits
  jmp_buf leave;

  Worker();
  ~Worker();
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  /// Runs all blocks; the fault or "".
  std::string run(const KernelLaunch &launch);
  void push(unsigned thread) { queue[tail++ % (2 * maxThreads)] = uint16_t(thread); }
  unsigned index(const Fiber *fiber) const { return unsigned(fiber - fibers); }
  /// Goes on with the next runnable fiber; returns when `me` is.
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
