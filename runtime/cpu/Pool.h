//===- Pool.h - The threads of one rank -----------------------------------===//
// A pool has one thread per core. The threads spin between pieces of work, so that a fork-join takes a tenth of a
// microsecond. A thread that waits long yields its core, then sleeps. The thread that owns the pool is thread 0.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_POOL_H
#define PCRT_CPU_POOL_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <sched.h>
#include <thread>
#include <type_traits>
#include <vector>

namespace pcrt {

/// The threads of one rank, from the constructor to the destructor. One task runs at a time, on all threads.
class Pool {
public:
  using Task = void (*)(void *arg, int thread);

  /// Starts `threads` - 1 threads (at least one thread is used). If the process's affinity mask has enough cores, each
  /// thread, the owner included, is pinned to one of them.
  explicit Pool(int threads);
  /// Ends the threads and gives the owner all of its cores again.
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int size() const { return numThreads; }

  /// Calls task(arg, t) on every thread t of the pool and waits. If tasks throw, throws the first exception. Only the
  /// owner may call this, and not from inside a task.
  void run(Task task, void *arg);

  /// Calls f(thread) on every thread and waits.
  template <typename F> void onAll(F &&f) {
    using Fn = std::remove_reference_t<F>;
    run([](void *arg, int thread) { (*static_cast<Fn *>(arg))(thread); },
        const_cast<void *>(static_cast<const void *>(&f)));
  }

  /// Calls f(thread, lo, hi) with disjoint ranges that cover [0, items), and waits. Threads without items are not
  /// called.
  template <typename F> void ranges(int64_t items, F &&f) {
    int parts = int(std::min<int64_t>(items, numThreads));
    if (parts <= 1) {
      if (items > 0)
        f(0, int64_t(0), items);
      return;
    }
    onAll([&](int thread) {
      if (thread < parts)
        f(thread, cut(items, parts, thread), cut(items, parts, thread + 1));
    });
  }

  /// Returns the start of part `index` if `items` are cut into `parts` of nearly equal size. The computation does not
  /// overflow.
  static int64_t cut(int64_t items, int64_t parts, int64_t index) {
    return items / parts * index + std::min(items % parts, index);
  }

private:
  void beginTask();
  void work(int thread);
  void call(int thread);

  int numThreads;
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int> unfinished{0};
  Task task = nullptr;
  void *arg = nullptr;
  std::atomic<bool> stopping{false}, hasThrown{false};
  std::exception_ptr thrown; ///< The exception of a task, if hasThrown.
  std::vector<std::thread> threads;
  std::optional<cpu_set_t> ownersCores; ///< The owner's cores before it was pinned.
};

} // namespace pcrt

#endif // PCRT_CPU_POOL_H
