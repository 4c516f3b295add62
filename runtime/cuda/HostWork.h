//===- HostWork.h - The work of the runtime's kernels on the stand-in -----===//
// The stand-in runs images for the host, and not PTX. Where the runtime launches a kernel of its own, it enqueues a
// function of the host instead.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_HOSTWORK_H
#define PCRT_CUDA_HOSTWORK_H

#include "cuda/Session.h"

#include <vector>

namespace pcrt::cuda {

/// Enqueues work.run() on `stream`. `accesses` lists the device memory that this function reads and writes.
template <typename Work>
void enqueueOnHost(const Session &session, Stream stream, const char *name, Work work,
                   const std::vector<pc_standin_access> &accesses) {
  session.standin->enqueue(
      stream, name, [](void *closure) { static_cast<Work *>(closure)->run(); }, new Work(work),
      [](void *closure) { delete static_cast<Work *>(closure); }, accesses.data(), int(accesses.size()));
}

} // namespace pcrt::cuda

#endif // PCRT_CUDA_HOSTWORK_H
