//===- Memory.h - The arena on the device, and copies to and from it ------===//
// The arena is one range of virtual addresses with physical memory of its own (what NCCL needs to register it). Copies
// go through pinned memory in pieces, so that any host memory can be copied while the driver only sees pinned one.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_MEMORY_H
#define PCRT_CUDA_MEMORY_H

#include "cuda/Session.h"

#include <mutex>

namespace pcrt::cuda {

class DeviceArena {
public:
  explicit DeviceArena(Session &session) : session(session) {}
  ~DeviceArena();

  /// Reserves and maps `wanted` bytes. Throws PCRT_RESOURCE with what is needed and what is free.
  char *allocate(int64_t wanted);
  /// Bytes that were mapped: what was wanted, in whole granules.
  int64_t mappedBytes() const { return int64_t(bytes); }

private:
  Session &session;
  Address base = 0;
  size_t bytes = 0;
  unsigned long long handle = 0;
  bool created = false, mapped = false;
};

class Staging {
public:
  explicit Staging(Session &session);
  /// Copy and wait; any thread.
  void write(void *to, const void *from, int64_t bytes);
  void read(void *to, const void *from, int64_t bytes);

private:
  static constexpr int64_t pieceBytes = 8 << 20;
  struct Piece {
    char *memory;
    Event done;
  };
  Session &session;
  std::mutex mutex;
  Piece pieces[2];
};

/// Fills device memory with small random numbers, as f32 and as bf16 alike, and waits: products of zeros are faster
/// than any other.
void fillWithNoise(Session &session, Staging &staging, char *at, int64_t bytes);

/// Enqueues a copy of `rows` rows of `width` bytes on the device, `toPitch` and `fromPitch` bytes apart.
Result copyRows(Session &session, void *to, int64_t toPitch, const void *from, int64_t fromPitch, int64_t width,
                int64_t rows);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_MEMORY_H
