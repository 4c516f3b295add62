//===- Allocations.h - proof that steps do not allocate -------------------===//
//
// The allocator of the process is wrapped, to count what reaches the heap
// inside steps. oneDNN builds small argument tables on every call; inside a
// LibraryCall they come from memory that each thread set aside at start-up.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_ALLOCATIONS_H
#define PCRT_DEVICE_ALLOCATIONS_H

#include <cstdint>

namespace pcrt {

/// Sets memory aside for `threads` threads. Called once, before the first LibraryCall.
void reserveLibraryMemory(int threads);

/// From here on, allocations that reach the heap are counted.
void startCountingAllocations();

/// Stops counting and returns how many allocations (malloc, calloc, realloc, new, ...) reached the heap since the
/// start. Always 0 in builds with a sanitizer, which owns the allocator.
int64_t stopCountingAllocations();

/// While it lives, allocations of the calling thread are served from the memory that was set aside for `thread`; where
/// that is full, or `thread` is -1, from the heap (and counted).
class LibraryCall {
public:
  explicit LibraryCall(int thread);
  ~LibraryCall();
  LibraryCall(const LibraryCall &) = delete;
  LibraryCall &operator=(const LibraryCall &) = delete;
};

} // namespace pcrt

#endif // PCRT_DEVICE_ALLOCATIONS_H
