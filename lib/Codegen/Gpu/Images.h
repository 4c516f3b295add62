//===- Images.h - gpu.module -> images that a device loads -----------------------------------===//
// One gpu.module becomes a cubin for each architecture, one PTX text for newer devices and, for tests, a shared object
// for this machine that the stand-in runs (standin/kernel). All are made from the same LLVM IR, linked with libdevice
// and optimized with -O3.
//===------------------------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_GPU_IMAGES_H
#define PC_LIB_CODEGEN_GPU_IMAGES_H

#include "pc/Codegen/Codegen.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace pc {

/// The devices to compile for, and the place of the CUDA toolkit.
struct GpuTargetOptions {
  /// Architectures; each gets a cubin. The cubin of an 'a' variant runs only on exactly that architecture.
  llvm::SmallVector<std::string> archs{std::begin(defaultArchs), std::end(defaultArchs)};
  /// Whether to run ptxas. Otherwise there is only PTX (for tests on this machine).
  bool emitCubins = true;
  /// Whether to make a shared object for this machine (needs ld.lld). It has each kernel twice: with calls of the
  /// access checker and without.
  bool emitHostImage = false;
  /// The only place to search for the CUDA toolkit (bin/ptxas and nvvm/libdevice). If empty: $CUDA_HOME, $CUDA_PATH,
  /// $CUDA_ROOT, the toolkit of the ptxas in PATH, and /usr/local/cuda.
  std::string cudaPath;
};

/// The values equal those of pcrt_image_kind (pcrt.h).
enum class GpuImageKind : int32_t { Cubin = 0, Ptx = 1, Host = 2 };

/// The resources of one kernel as reported by ptxas, per thread except `shared` (static bytes of a block).
struct GpuKernelUse {
  std::string kernel;
  int64_t registers = 0, spillStores = 0, spillLoads = 0, stack = 0, shared = 0;
  /// Threads of a block as the kernel states them (nvvm.reqntid or nvvm.maxntid); 0: not stated.
  int64_t threads = 0;
};

/// A place where a host image synchronizes: a barrier, a warp barrier, or a wait or a fence for asynchronous copies or
/// products. Sites are numbered in the checked variant of their kernel. Tests leave out one site
/// (KernelLaunch::skippedSite, PC_STANDIN_FAULT=site:N).
struct GpuSite {
  int64_t number;
  std::string kernel, text;
};

/// An image that the driver or the stand-in loads, with ptxas's figures of its kernels.
struct GpuImage {
  GpuImageKind kind;
  int32_t arch = 0;              ///< 90 for sm_90 and sm_90a; 0: host
  bool archSpecific = false;     ///< an 'a' variant
  std::string bytes;             ///< PTX ends with a zero byte, as the driver requires
  std::vector<GpuKernelUse> use; ///< ptxas's figures of a cubin, in the order of the kernels
  std::vector<GpuSite> sites;    ///< the sites of a host image
};

/// Compiles a module whose kernels (gpu.func, kernel) take pointers, scalars or static memrefs. The module is not
/// changed. Returns cubins in the order of `archs`, then PTX, then the host image. The PTX is for the base of the
/// lowest architecture, so it also runs on newer devices; PTX with wgmma is for sm_90a and runs only there. Without
/// ptxas there are no cubins, and a remark says so. Fails if an architecture is unknown, libdevice is missing, an op
/// cannot be lowered, or ptxas fails.
llvm::FailureOr<llvm::SmallVector<GpuImage>> compileGpuModule(mlir::gpu::GPUModuleOp module,
                                                              const GpuTargetOptions &options);

} // namespace pc

#endif
