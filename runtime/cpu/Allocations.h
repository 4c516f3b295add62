//===- Allocations.h - Proof that steps do not allocate -------------------===//
// The allocator of the process is wrapped, to count what reaches the heap inside steps. oneDNN builds small argument
// tables on every call; inside a LibraryCall they come from memory that each thread set aside at start-up.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_ALLOCATIONS_H
#define PCRT_CPU_ALLOCATIONS_H

#include <cstdint>

namespace pcrt {

/// Sets memory aside for `threads` more threads and returns the index of the first one, -1 where there is none left.
/// Called by each rank of the process, on the thread that will begin its steps, before its first LibraryCall.
int reserveLibraryMemory(int threads);

/// The calling thread works for steps only: its allocations count while a rank of this process is in one. Those of
/// other threads (which watch peers, say) never do.
void countAllocationsOfThread();

/// A step of a rank of this process begins on this thread: allocations that reach the heap are counted.
void startCountingAllocations();

/// The step ends. Returns how many allocations (malloc, calloc, realloc, new, ...) reached the heap since the last call
/// of this function. Always 0 in builds with a sanitizer, which owns the allocator.
int64_t stopCountingAllocations();

/// While it lives, allocations of the calling thread are served from the memory with index `thread`; where that is
/// full, or `thread` is negative, from the heap (and counted).
class LibraryCall {
public:
  explicit LibraryCall(int thread);
  ~LibraryCall();
  LibraryCall(const LibraryCall &) = delete;
  LibraryCall &operator=(const LibraryCall &) = delete;
};

} // namespace pcrt

#endif // PCRT_CPU_ALLOCATIONS_H
