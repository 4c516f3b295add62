//===- Image.h - the table of kernels in a host image ---------------------===//
//
// A host image is a shared object that exports pc_standin_module, a ModuleTable.
// The compiler writes it (lib/Codegen/Gpu); kernel/ runs its kernels.
//
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_IMAGE_H
#define PC_STANDIN_IMAGE_H

#include "standin/standin.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace pc::standin {

constexpr uint32_t moduleTableVersion = 1;

/// One kernel. `entry(params)` runs it for the thread that pc_cur describes.
struct KernelRow {
  const char *name;
  void (*entry)(void **params);
  uint32_t sharedBytes; ///< Static.
  uint32_t usesSync;    ///< It has barriers, shuffles or the like.
  uint32_t required[3]; ///< The block size it was compiled for; 0: any.
  uint32_t numParams;
  const uint32_t *paramBytes;
};

struct ModuleTable {
  uint32_t version, numKernels;
  const KernelRow *rows;
  const char *const *sites; ///< Source positions by number, for reports.
};

/// One run of a kernel over its grid.
struct KernelLaunch {
  const ModuleTable &table;
  const KernelRow &row;
  std::array<uint32_t, 3> grid, block;
  uint32_t dynamicShared; ///< Bytes.
  void **params;          ///< One pointer to each parameter's value.
  uint64_t order;         ///< 0: threads in ascending order; else the seed of another order.
};

/// Runs all blocks and waits. `check`: memory accesses are checked. `accesses`, unless null, gets the global memory
/// that the kernel read and wrote, as few ranges. Returns the first fault or nothing.
std::string runKernel(const KernelLaunch &launch, bool check, std::vector<pc_standin_access> *accesses);

} // namespace pc::standin

#endif // PC_STANDIN_IMAGE_H
