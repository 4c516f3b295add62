//===- RowCounter.h - The rows that a mask on the device chooses ----------===//
// A move of rows sends only the rows that its mask chooses, so the host must know their number before it can enqueue
// the move. A kernel counts them, and the host reads the counts.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ROWCOUNTER_H
#define PCRT_CUDA_ROWCOUNTER_H

#include "cuda/Memory.h"
#include "pcrt/pcrt.h"

namespace pcrt::cuda {

/// Counts the rows of one rank's moves. The counter owns the memory for the counts, on the device and on the host.
class RowCounter {
public:
  explicit RowCounter(Session &session);
  ~RowCounter();

  /// Makes room for the counts of `move` in a group of `members`. Called before allocate.
  void reserve(const pcrt_move_desc &move, int members);
  void allocate();

  /// Enqueues the count of the rows of `move`, whose mask is at `mask` on the device.
  Result enqueue(const pcrt_move_desc &move, int members, const void *mask, Stream stream);
  /// Passes the counts of that move, which must be done, to rowCounts() of this thread. Returns null, or what is wrong.
  const char *take(const pcrt_move_desc &move, int members) const;

private:
  Session &session;
  DeviceArena memory;
  Module module = nullptr;
  Function kernel = nullptr;
  int64_t most = 0;
  char *onDevice = nullptr;
  int32_t *onHost = nullptr;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ROWCOUNTER_H
