//===- Allocations.h - Proof that steps do not allocate -------------------===//
// The allocator of the process is wrapped, to count the allocations inside steps that reach the heap. oneDNN builds
// small argument tables on every call. Inside a LibraryCall, they come from memory that each thread has set aside at
// start-up.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_ALLOCATIONS_H
#define PCRT_CPU_ALLOCATIONS_H

#include <cstdint>

namespace pcrt {

/// Sets memory aside for `threads` more threads and returns the index of the first one, or -1 if no memory is left.
/// Each rank of the process calls this on the thread that will begin its steps, before its first LibraryCall.
int reserveLibraryMemory(int threads);

/// Declares that the calling thread works only for steps. Its allocations count while a rank of this process is in a
/// step. Allocations of other threads, for example of threads that watch peers, never count.
void countAllocationsOfThread();

/// Says that a step of a rank of this process begins on this thread: allocations that reach the heap are counted.
void startCountingAllocations();

/// Says that the step ends. Returns the number of allocations (malloc, calloc, realloc, new, ...) that reached the heap
/// since the last call of this function. The number is always 0 in builds with a sanitizer, which owns the allocator.
int64_t stopCountingAllocations();

/// While the object exists, allocations of the calling thread are served from the memory with index `thread`. If that
/// memory is full, or `thread` is negative, they come from the heap and are counted.
class LibraryCall {
public:
  explicit LibraryCall(int thread);
  ~LibraryCall();
  LibraryCall(const LibraryCall &) = delete;
  LibraryCall &operator=(const LibraryCall &) = delete;
};

} // namespace pcrt

#endif // PCRT_CPU_ALLOCATIONS_H
