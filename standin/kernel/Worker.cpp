//===- Worker.cpp - Blocks, fibers, barriers ------------------------------===//
// A block ends when all fibers have returned. If no fiber can run before, the threads wait at different barriers or
// collectives, which is reported as a deadlock. Faults leave the launch by longjmp.
//===----------------------------------------------------------------------===//
#include "Warpgroups.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sys/mman.h>

extern "C" {
__thread pcrt_host_thread *pc_thread __attribute__((tls_model("initial-exec")));
void pc_switch(void **save, void *to) __attribute__((visibility("hidden")));
}

namespace pc::standin {

static uint8_t *reserve(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("stand-in: cannot reserve memory for kernels");
    std::abort();
  }
  return static_cast<uint8_t *>(p);
}

Worker::Worker() : copies(maxThreads), started(maxThreads) {
  fibers = static_cast<Fiber *>(std::calloc(maxThreads, sizeof(Fiber)));
  stacks = reserve(size_t(maxThreads) * stackBytes);
  sharedReserved = reserve(sharedCapacity + sharedAlignment);
  auto address = reinterpret_cast<uintptr_t>(sharedReserved);
  shared = sharedReserved + (-address & (sharedAlignment - 1));
}

Worker::~Worker() {
  munmap(stacks, size_t(maxThreads) * stackBytes);
  munmap(sharedReserved, sharedCapacity + sharedAlignment);
  std::free(fibers);
}

uint64_t Worker::draw() { // xorshift
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

std::string Worker::siteText(uint32_t site) const {
  const pcrt_host_module &module = *launch->module;
  return site < module.num_sites ? module.sites[site].text : "an unknown place";
}

void Worker::yield(Fiber *me) {
  if (head == tail) {
    pc_thread = nullptr;
    pc_switch(&me->stack, mainStack);
    return;
  }
  Fiber *next = &fibers[queue[head++ % (2 * maxThreads)]];
  if (next == me)
    return;
  pc_thread = &next->thread;
  pc_switch(&me->stack, next->stack);
}

void Worker::fail(Fiber *me, std::string text) {
  if (fault.empty()) {
    const pcrt_host_thread &t = me->thread;
    char where[160];
    std::snprintf(where, sizeof where, ": block %u,%u,%u thread %u,%u,%u: ", t.ctaid[0], t.ctaid[1], t.ctaid[2],
                  t.tid[0], t.tid[1], t.tid[2]);
    fault = std::string("kernel ") + launch->kernel->name + where + text;
  }
  text = {}; // nothing on this stack is destroyed
  pc_thread = nullptr;
  if (plain)
    longjmp(leave, 1);
  void *abandoned;
  pc_switch(&abandoned, mainStack);
  std::abort();
}

void Worker::enter(unsigned thread) {
  const pcrt_host_kernel &kernel = *launch->kernel;
  pc_thread = &fibers[thread].thread;
  (launch->checker ? kernel.checked : kernel.entry)(launch->params);
}

void Worker::fiberReturned(Fiber *me) {
  me->waits = Waits::Done;
  ++done;
  yield(me);
}

/// The body of a fiber: it runs one thread of each block after the other, on the same stack.
static void fiberBody() {
  for (;;) {
    Fiber *me = fiberOf(pc_thread);
    Worker *worker = me->worker;
    const KernelLaunch &launch = *worker->launch;
    (launch.checker ? launch.kernel->checked : launch.kernel->entry)(launch.params);
    worker->fiberReturned(me);
  }
}

void Worker::freshStack(unsigned thread) {
  uint8_t *low = stacks + size_t(thread) * stackBytes;
  mprotect(low, 4096, PROT_NONE);
  // Hot lines of different fibers use different cache sets.
  auto top = uintptr_t(low + stackBytes - (thread % 32) * 320 - 64) & ~uintptr_t(63);
  auto *slot = reinterpret_cast<uint64_t *>(top);
  *--slot = 0;
  *--slot = reinterpret_cast<uint64_t>(&fiberBody);
  for (int saved = 0; saved < 6; ++saved)
    *--slot = 0;
  fibers[thread].stack = slot;
}

std::string Worker::deadlock() const {
  std::map<std::pair<Waits, uint32_t>, unsigned> waiting;
  for (unsigned i = 0; i < threads; ++i)
    if (fibers[i].waits == Waits::Barrier || fibers[i].waits == Waits::Warp)
      ++waiting[{fibers[i].waits, fibers[i].site}];
  std::string text = "deadlock: threads wait for threads that never arrive: ";
  for (const auto &[what, count] : waiting)
    text += std::to_string(count) + " at " + siteText(what.second) + ", ";
  return text + std::to_string(done) + " returned";
}

void Worker::runBlock(unsigned block) {
  const uint32_t *grid = launch->grid;
  head = tail = done = arrived = 0;
  if (sharedBytes)
    std::memset(shared, 0xFF, sharedBytes); // NaN: reads of unwritten bytes show in results
  for (unsigned i = 0; i < threads; ++i) {
    Fiber &fiber = fibers[i];
    fiber.thread.ctaid[0] = block % grid[0];
    fiber.thread.ctaid[1] = block / grid[0] % grid[1];
    fiber.thread.ctaid[2] = block / grid[0] / grid[1];
    fiber.waits = Waits::No;
    copies[i].pending.clear();
    copies[i].group = 0;
  }
  warpgroups.reset();
  if (launch->checker)
    launch->checker->beginBlock(shared, launch->dynamicShared, block, grid);
  if (plain) {
    if (!setjmp(leave))
      inOrder(threads, [&](unsigned i) { enter(i); });
    pc_thread = nullptr;
    return;
  }
  for (unsigned i = 0; i < threads; ++i)
    if (!started[i]) {
      freshStack(i);
      started[i] = true;
    }
  for (Warp &warp : warps)
    warp.arrived = 0;
  inOrder(threads, [&](unsigned i) { push(i); });
  Fiber *first = &fibers[queue[head++ % (2 * maxThreads)]];
  pc_thread = &first->thread;
  pc_switch(&mainStack, first->stack);
  if (fault.empty()) {
    std::string left = done != threads ? deadlock() : warpgroups ? warpgroups->unfinished() : "";
    char where[80];
    std::snprintf(where, sizeof where, ": block %u,%u,%u: ", block % grid[0], block / grid[0] % grid[1],
                  block / grid[0] / grid[1]);
    if (!left.empty())
      fault = std::string("kernel ") + launch->kernel->name + where + left;
  }
  if (!fault.empty())
    started.assign(maxThreads, false); // abandoned in the middle
}

std::string Worker::run(const KernelLaunch &request) {
  launch = &request;
  const pcrt_host_kernel &kernel = *request.kernel;
  const uint32_t *block = request.block, *grid = request.grid;
  uint64_t count = uint64_t(block[0]) * block[1] * block[2], blocks = uint64_t(grid[0]) * grid[1] * grid[2];
  uint64_t stated = uint64_t(kernel.block[0]) * kernel.block[1] * kernel.block[2];
  std::string name = std::string("kernel ") + kernel.name + ": ";
  auto size = [](const uint32_t *d) {
    return std::to_string(d[0]) + "x" + std::to_string(d[1]) + "x" + std::to_string(d[2]);
  };
  if (count == 0 || count > maxThreads || blocks == 0 || blocks > 0xffffffffu)
    return name + "no device can run " + size(grid) + " blocks of " + size(block) + " threads";
  if (stated && (kernel.exact ? std::memcmp(block, kernel.block, sizeof kernel.block) != 0 : count > stated))
    return name + "launched with " + size(block) + " threads, compiled for " + (kernel.exact ? "" : "at most ") +
           size(kernel.block);
  if (uint64_t(kernel.shared_bytes) + request.dynamicShared > maxSharedBytes)
    return name + std::to_string(kernel.shared_bytes + uint64_t(request.dynamicShared)) +
           " bytes of shared memory, but a block may have " + std::to_string(maxSharedBytes);
  if (uint64_t(kernel.shared_extent) + request.dynamicShared > sharedCapacity)
    return name + "the stand-in does not support this many variables in shared memory";
  threads = unsigned(count);
  sharedBytes = kernel.shared_extent + request.dynamicShared;
  plain = !kernel.synchronizes;
  random = (request.order + 1) * 0x9E3779B97F4A7C15ull;
  fault.clear();
  for (unsigned i = 0; i < threads; ++i) {
    Fiber &fiber = fibers[i];
    pcrt_host_thread &t = fiber.thread;
    fiber.worker = this;
    t.tid[0] = i % block[0];
    t.tid[1] = i / block[0] % block[1];
    t.tid[2] = i / block[0] / block[1];
    std::memcpy(t.ntid, block, sizeof t.ntid);
    std::memcpy(t.nctaid, grid, sizeof t.nctaid);
    t.lane = i % warpSize;
    t.dynamic_bytes = request.dynamicShared;
    t.shared = shared;
  }
  if (request.checker)
    request.checker->beginLaunch(request.module, &kernel, block);
  // A random order steps through all blocks by a stride without common factors.
  uint64_t stride = 1, at = 0;
  if (request.order == 1) {
    at = blocks - 1;
    stride = blocks - 1;
  } else if (request.order > 1) {
    at = draw() % blocks;
    auto divisor = [](uint64_t a, uint64_t b) {
      while (b)
        std::swap(a %= b, b);
      return a;
    };
    do
      stride = draw() % blocks;
    while (divisor(blocks, stride) != 1);
  }
  for (uint64_t i = 0; i < blocks && fault.empty(); ++i, at = (at + stride) % blocks)
    runBlock(unsigned(at));
  return std::move(fault);
}

std::string pc_run_kernel(const KernelLaunch &launch) {
  static thread_local std::unique_ptr<Worker>
      worker; // on the heap, because a library's static thread-local block is small
  if (!worker)
    worker = std::make_unique<Worker>();
  return worker->run(launch);
}

} // namespace pc::standin

using namespace pc::standin;

extern "C" void pc_barrier(pcrt_host_thread *thread, uint32_t site) {
  Fiber *me = fiberOf(thread);
  Worker &worker = *me->worker;
  if (site == worker.launch->skippedSite)
    return;
  me->waits = Waits::Barrier;
  me->site = site;
  if (++worker.arrived < worker.threads) {
    worker.yield(me);
    return;
  }
  worker.arrived = 0;
  for (unsigned i = 0; i < worker.threads; ++i) {
    Fiber &other = worker.fibers[i];
    if (other.site != site)
      worker.fail(me, "barriers in divergent code: this thread waits at " + worker.siteText(site) + ", thread " +
                          std::to_string(i) + " at " + worker.siteText(other.site));
    other.waits = Waits::No;
  }
  if (worker.launch->checker)
    worker.launch->checker->barrier();
  worker.inOrder(worker.threads, [&](unsigned i) { worker.push(i); });
  worker.yield(me);
}

extern "C" void pc_access(pcrt_host_thread *thread, const void *address, uint32_t bytes, uint32_t kind, uint64_t value,
                          uint32_t site) {
  Fiber *me = fiberOf(thread);
  Worker &worker = *me->worker;
  std::string fault = worker.launch->checker->access(worker.index(me), address, bytes, kind, value, site);
  if (!fault.empty())
    worker.fail(me, std::move(fault));
}
