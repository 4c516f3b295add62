//===- Memory.h - The arena on the device, and copies to and from it ------===//
// The arena is one range of virtual addresses with its own physical memory, which NCCL needs to register the arena.
// Copies go through pinned memory in pieces. So any host memory can be copied, although the driver sees only pinned
// memory.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_MEMORY_H
#define PCRT_CUDA_MEMORY_H

#include "cuda/Session.h"

#include <mutex>

namespace pcrt::cuda {

/// A range of device memory. The object owns the memory.
class DeviceArena {
public:
  explicit DeviceArena(Session &session) : session(session) {}
  ~DeviceArena();

  /// Reserves and maps `wanted` bytes, once. Throws PCRT_RESOURCE with the bytes that are needed and free.
  char *allocate(int64_t wanted);
  /// The mapped bytes: the wanted ones, rounded up to whole granules.
  int64_t mappedBytes() const { return int64_t(bytes); }

private:
  Session &session;
  Address base = 0;
  size_t bytes = 0;
  unsigned long long handle = 0;
  bool created = false, mapped = false;
};

/// Two pieces of pinned memory, through which any thread may copy between host and device. Throws a Failure if the
/// driver fails.
class Staging {
public:
  explicit Staging(Session &session);
  /// Copy `bytes` bytes to (write) or from (read) the device, and wait.
  void write(void *to, const void *from, int64_t bytes);
  void read(void *to, const void *from, int64_t bytes);

private:
  static constexpr int64_t pieceBytes = 8 << 20;
  /// Pinned memory of pieceBytes, and the event after its last copy.
  struct Piece {
    char *memory;
    Event done;
  };
  Session &session;
  std::mutex mutex;
  Piece pieces[2];
};

/// Fills device memory with numbers that are small both as f32 and as bf16, and waits. Products are measured with such
/// numbers, because products of zeros are faster.
void fillWithNoise(Session &session, Staging &staging, char *at, int64_t bytes);

/// Enqueues a copy of `rows` rows of `width` bytes on the device, `toPitch` and `fromPitch` bytes apart.
Result copyRows(Session &session, void *to, int64_t toPitch, const void *from, int64_t fromPitch, int64_t width,
                int64_t rows);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_MEMORY_H
