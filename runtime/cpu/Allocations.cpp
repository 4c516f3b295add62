//===- Allocations.cpp - Proof that steps do not allocate -----------------===//
// Defines malloc and its relatives on top of glibc's __libc_malloc. A region is a stack: its top returns to the bottom
// once all blocks are freed, by any thread. A block of a region is known by its address. Builds with a sanitizer wrap
// nothing.
//===----------------------------------------------------------------------===//
#include "cpu/Allocations.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PCRT_WRAP_ALLOCATOR 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define PCRT_WRAP_ALLOCATOR 0
#endif
#endif
#ifndef PCRT_WRAP_ALLOCATOR
#define PCRT_WRAP_ALLOCATOR 1
#endif

using namespace pcrt;

#if PCRT_WRAP_ALLOCATOR

namespace {

/// The memory of one thread: a stack of blocks that is empty again when the last block has been freed.
struct alignas(64) Region {
  std::atomic<int64_t> live{0}; ///< Blocks that have not been freed; other threads may free them.
  int64_t used = 0;
  char *base = nullptr;
};

/// Precedes every block of a region, so that realloc knows how much to copy.
struct alignas(16) BlockHead {
  size_t bytes;
};

constexpr int64_t kRegionBytes = 64 << 20; // address space; only touched pages cost memory
constexpr int kMaxRegions = 1024;

Region regions[kMaxRegions];
char *regionsBase = nullptr, *regionsEnd = nullptr;
thread_local Region *current __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local bool counts __attribute__((tls_model("initial-exec"))) = false; ///< This thread works for a step.
std::atomic<int> stepping{0}; ///< Ranks of this process that are in a step.
std::atomic<int64_t> counted{0};
std::mutex reserving;
int reserved = 0;

/// A block of the region that this thread uses now, or null.
void *fromRegion(size_t alignment, size_t bytes) {
  Region *region = current;
  if (!region)
    return nullptr;
  if (region->live.load(std::memory_order_acquire) == 0)
    region->used = 0;
  alignment = alignment < 64 ? 64 : alignment;
  if (bytes > size_t(kRegionBytes) || alignment > 4096)
    return nullptr;
  uintptr_t at = reinterpret_cast<uintptr_t>(region->base) + region->used + sizeof(BlockHead);
  at = (at + alignment - 1) & ~uintptr_t(alignment - 1);
  int64_t end = int64_t(at - reinterpret_cast<uintptr_t>(region->base)) + int64_t(bytes);
  if (end > kRegionBytes)
    return nullptr;
  region->used = end;
  region->live.fetch_add(1, std::memory_order_relaxed);
  reinterpret_cast<BlockHead *>(at)[-1].bytes = bytes;
  return reinterpret_cast<void *>(at);
}

bool inRegions(const void *block) {
  const char *at = static_cast<const char *>(block);
  return at >= regionsBase && at < regionsEnd;
}

void freeInRegion(void *block) {
  regions[(static_cast<char *>(block) - regionsBase) / kRegionBytes].live.fetch_sub(1, std::memory_order_release);
}

void count() {
  if (counts && stepping.load(std::memory_order_relaxed))
    counted.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

int pcrt::reserveLibraryMemory(int threads) {
  std::lock_guard<std::mutex> lock(reserving);
  if (!regionsBase) {
    // All regions share one range of addresses, so that a block is recognized by its address. The range uses no memory
    // yet.
    void *memory = mmap(nullptr, kMaxRegions * kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return -1;
    regionsBase = static_cast<char *>(memory);
    regionsEnd = regionsBase + kMaxRegions * kRegionBytes;
  }
  char *first = regionsBase + reserved * kRegionBytes;
  // NORESERVE: memory is taken as it is touched.
  if (reserved + threads > kMaxRegions ||
      mmap(first, threads * kRegionBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return -1;
  for (int thread = 0; thread < threads; ++thread)
    regions[reserved + thread].base = first + thread * kRegionBytes;
  reserved += threads;
  return reserved - threads;
}

void pcrt::countAllocationsOfThread() { counts = true; }

void pcrt::startCountingAllocations() {
  counts = true;
  stepping.fetch_add(1);
}

int64_t pcrt::stopCountingAllocations() {
  stepping.fetch_sub(1);
  counts = false;
  return counted.exchange(0);
}

LibraryCall::LibraryCall(int thread) {
  current = thread >= 0 && thread < kMaxRegions && regions[thread].base ? &regions[thread] : nullptr;
}
LibraryCall::~LibraryCall() { current = nullptr; }

//===----------------------------------------------------------------------===//
// The wrapped allocator (operator new calls malloc)
//===----------------------------------------------------------------------===//

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t bytes) {
  if (void *block = fromRegion(16, bytes))
    return block;
  count();
  return __libc_malloc(bytes);
}

void free(void *block) {
  if (!block)
    return;
  if (inRegions(block))
    freeInRegion(block);
  else
    __libc_free(block);
}

void *calloc(size_t number, size_t bytes) {
  size_t total;
  if (current && !__builtin_mul_overflow(number, bytes, &total))
    if (void *block = fromRegion(16, total))
      return memset(block, 0, total);
  count();
  return __libc_calloc(number, bytes);
}

void *realloc(void *block, size_t bytes) {
  if (!block)
    return malloc(bytes);
  if (!inRegions(block)) {
    count();
    return __libc_realloc(block, bytes);
  }
  void *larger = malloc(bytes);
  if (larger) {
    size_t old = static_cast<BlockHead *>(block)[-1].bytes;
    memcpy(larger, block, old < bytes ? old : bytes);
    freeInRegion(block);
  }
  return larger;
}

void *memalign(size_t alignment, size_t bytes) {
  if (void *block = fromRegion(alignment, bytes))
    return block;
  count();
  return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **block, size_t alignment, size_t bytes) {
  if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
    return EINVAL;
  *block = memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
} // extern "C"

#else

int pcrt::reserveLibraryMemory(int) { return -1; }
void pcrt::countAllocationsOfThread() {}
void pcrt::startCountingAllocations() {}
int64_t pcrt::stopCountingAllocations() { return 0; }
LibraryCall::LibraryCall(int) {}
LibraryCall::~LibraryCall() = default;

#endif
