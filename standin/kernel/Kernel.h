//===- Kernel.h - Runs device kernels on this machine ---------------------===//
// Loads host images (pcrt/host_image.h) and runs launches: the threads of a block are fibers on the calling thread, and
// blocks run one after the other. It reports faults that a device would silently ignore: barriers and shuffles in
// divergent code always, races and wrong addresses with an AccessChecker.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_KERNEL_KERNEL_H
#define PC_STANDIN_KERNEL_KERNEL_H

#include "pcrt/host_image.h"

#include <cstddef>
#include <string>

namespace pc::standin {

class AccessChecker;

/// A loaded image.
struct KernelImage {
  const pcrt_host_module *module = nullptr;
  void *handle = nullptr;
  int file = -1;

  const pcrt_host_kernel *find(const std::string &name) const;
};

/// Loads an image from memory. The library with the kernel functions must be visible to it: the caller's own
/// executable, or one loaded with RTLD_GLOBAL. Returns "" or an error (not an image, another version, an instruction
/// without stand-in).
std::string loadKernelImage(const void *data, size_t bytes, KernelImage &image);
void unloadKernelImage(KernelImage &image);

/// One launch.
struct KernelLaunch {
  const pcrt_host_module *module = nullptr;
  const pcrt_host_kernel *kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t dynamicShared = 0; ///< bytes
  void **params = nullptr;    ///< pointers to the values of the parameters
  /// The order of threads and blocks: 0 is ascending, 1 descending, others seed a random order.
  uint64_t order = 0;
  AccessChecker *checker = nullptr; ///< null: accesses are not checked
  /// For tests: the barrier, warp synchronization or wait at this site does nothing; -1: none.
  int64_t skippedSite = -1;
};

/// Runs a launch to its end. Returns "" or the first fault, with kernel, block, thread and places.
std::string pc_run_kernel(const KernelLaunch &launch);

/// The largest shared memory of a block in bytes (sm_90: 227 KiB).
constexpr uint32_t maxSharedBytes = 227 << 10;

} // namespace pc::standin

#endif
