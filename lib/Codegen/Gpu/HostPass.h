//===- HostPass.h - NVPTX LLVM IR -> LLVM IR for this machine ----------------------------------===//
// Input: the LLVM IR of kernels for NVPTX. Result: the same module for the host CPU, in which one call is one thread.
// The stand-in (standin/kernel) runs the threads of a block and checks their accesses.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_GPU_HOSTPASS_H
#define PC_LIB_CODEGEN_GPU_HOSTPASS_H

#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

namespace pc::toolchain {

/// A place in a kernel (pcrt_host_site).
struct HostSite {
  int32_t kind;
  std::string kernel, text;
};

/// One kernel of an image (pcrt_host_kernel), without its entry points.
struct HostKernel {
  std::string name;
  bool synchronizes = false;
  uint64_t sharedBytes = 0, sharedExtent = 0;
  llvm::SmallVector<std::pair<uint32_t, uint32_t>> shared; ///< offset and bytes
  uint32_t block[3] = {0, 0, 0};
  bool exact = false;
  llvm::SmallVector<uint32_t> paramBytes;
};

/// Rewrites a module in place, so that one call of `pc_entry_<kernel><suffix>`(void **params) is one thread of a kernel
/// in the stand-in (standin/kernel). Special registers become fields of the running thread. Barriers, shuffles and
/// other instructions become calls. Shared variables become offsets in the block's memory. If `check` is true,
/// pc_access is called before every access. Appends the sites. The error names the kernel and the instruction that
/// cannot be replaced.
llvm::Expected<std::vector<HostKernel>> rewriteForHost(llvm::Module &module, bool check, llvm::StringRef suffix,
                                                       std::vector<HostSite> &sites);

/// Adds the table that the stand-in reads, `pc_standin_module`, to a module that holds both variants of each kernel.
void addHostTable(llvm::Module &module, const std::vector<HostKernel> &kernels, const std::vector<HostSite> &sites,
                  llvm::StringRef suffix, llvm::StringRef checkedSuffix);

} // namespace pc::toolchain

#endif
