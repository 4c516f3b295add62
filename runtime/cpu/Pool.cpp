//===- Pool.cpp - The threads of one rank ---------------------------------===//
// A generation number starts a task and a counter of unfinished threads ends it. Waiting threads spin, then yield, then
// sleep on the generation number with a futex (std::atomic::wait).
//===----------------------------------------------------------------------===//
#include "cpu/Pool.h"
#include "base/SignalMask.h"
#include "cpu/Allocations.h"

#include <pthread.h>
#include <sched.h>
#include <utility>

using namespace pcrt;

/// Rounds of spinning (about 0.3 ms), and of yielding the core afterwards (as long again on an idle machine).
static constexpr int kSpins = 20000, kYields = 1000;

/// Spins until the condition holds; returns false after `limit` rounds.
template <typename Condition> static bool spinUntil(Condition condition, int64_t limit) {
  for (int64_t spins = 0; !condition(); ++spins) {
    if (spins == limit)
      return false;
    if (spins < kSpins)
      __builtin_ia32_pause();
    else
      sched_yield();
  }
  return true;
}

/// Pins the calling thread to core `index` of the process's mask if the mask has at least `wanted` cores.
static void pinToCore(const cpu_set_t &allowed, int index, int wanted) {
  if (CPU_COUNT(&allowed) < wanted)
    return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && index-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
      return;
    }
  }
}

Pool::Pool(int wanted) : numThreads(std::max(wanted, 1)) {
  cpu_set_t allowed;
  bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0 && numThreads > 1;
  for (int thread = 1; thread < numThreads; ++thread) {
    SignalsMasked masked;
    threads.emplace_back([=, this] {
      if (known)
        pinToCore(allowed, thread, numThreads);
      countAllocationsOfThread();
      work(thread);
    });
  }
  if (known) {
    ownersCores = allowed;
    pinToCore(allowed, 0, numThreads);
  }
}

Pool::~Pool() {
  stopping.store(true);
  beginTask();
  for (std::thread &thread : threads)
    thread.join();
  if (ownersCores) // so that threads that are started later, such as NCCL's, inherit all cores
    pthread_setaffinity_np(pthread_self(), sizeof *ownersCores, &*ownersCores);
}

void Pool::run(Task newTask, void *newArg) {
  if (numThreads == 1)
    return newTask(newArg, 0);
  task = newTask;
  arg = newArg;
  unfinished.store(numThreads - 1, std::memory_order_relaxed);
  beginTask();
  call(0);
  spinUntil([this] { return unfinished.load(std::memory_order_acquire) == 0; }, INT64_MAX);
  if (hasThrown.load(std::memory_order_relaxed)) {
    hasThrown.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(thrown, nullptr));
  }
}

/// Runs this thread's part of the task. An exception is kept for run() to throw when all threads are done.
void Pool::call(int thread) {
  try {
    task(arg, thread);
  } catch (...) {
    if (!hasThrown.exchange(true, std::memory_order_relaxed))
      thrown = std::current_exception();
  }
}

/// Publishes a new task and wakes the threads that sleep.
void Pool::beginTask() {
  generation.fetch_add(1, std::memory_order_release);
  generation.notify_all();
}

void Pool::work(int thread) {
  for (uint32_t seen = 0;;) {
    if (!spinUntil([&] { return generation.load(std::memory_order_acquire) != seen; }, kSpins + kYields))
      generation.wait(seen, std::memory_order_acquire);
    ++seen;
    if (stopping.load())
      return;
    call(thread);
    unfinished.fetch_sub(1, std::memory_order_release);
  }
}
