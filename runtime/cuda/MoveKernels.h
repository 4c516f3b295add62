//===- MoveKernels.h - Small kernels between moves by NCCL ----------------===//
// These are kernels and not copies, because copies of all streams may share the queue of one copy engine. In such a
// queue, a copy that waits for a message would delay all others; CUDA does not exclude this. On the stand-in, functions
// of the host do the same as the kernels.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_MOVEKERNELS_H
#define PCRT_CUDA_MOVEKERNELS_H

#include "cuda/Session.h"

namespace pcrt::cuda {

/// Loads the kernels of Blocks.cu and owns them.
class MoveKernels {
public:
  /// Loads the kernels. Throws a Failure if the device refuses them.
  explicit MoveKernels(Session &session);
  ~MoveKernels();

  /// Enqueues a write of `value` to pinned memory, which the host polls.
  Result note(volatile uint32_t *to, uint32_t value, Stream stream);

  /// Enqueues to[column][row] = from[row][column] for blocks of `width` bytes, an even number. `name` is the move's.
  Result swapBlocks(void *to, const void *from, int64_t rows, int64_t columns, int64_t width, const char *name,
                    Stream stream);

private:
  Session &session;
  Module module = nullptr;
  Function noteKernel = nullptr, swaps[4] = {}; ///< In units of 16, 4, 2 and 1 bytes.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_MOVEKERNELS_H
