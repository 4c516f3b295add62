//===- KernelSet.h - The kernels of a program -----------------------------------------------===//
// Input: ops of a planned program, one by one. Result: functions in the output module, and the data for their table
// entries. Kernels are numbered in the order of their first request.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_KERNELSET_H
#define PC_LIB_CODEGEN_HOST_KERNELSET_H

#include "../Count/Accesses.h"
#include "../Emit/Simt.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <string>

namespace pc {

/// The target of kernels.
struct KernelTarget {
  bool cuda = false;
  int64_t lanes = 16;        ///< CPU: f32 elements of a vector
  bool roundsToBf16 = false; ///< CPU: it has instructions for rounding, and for products of pairs of bf16
  bool warpgroups = false;   ///< CUDA: all devices are of sm_90a, which multiplies by warpgroups (wgmma)
};

/// Whether programs for these architectures run only on sm_90a. An empty list means the default architectures.
bool haveWarpgroups(llvm::ArrayRef<std::string> archs);

/// Writes one function per distinct kernel; equal ops of different layers share one. CPU kernels are llvm.funcs of the
/// C type pcrt_kernel_fn in `output`. CUDA kernels are gpu.funcs in the `gpu.module @pc_kernels` of `output`, and their
/// arguments are the addresses of buffers.
class KernelSet {
public:
  KernelSet(mlir::ModuleOp output, KernelTarget target) : output(output), target(target) {}

  /// The data for a kernel's table entry. Sizes are in bytes. CPU threads divide the `items` among them.
  struct Info {
    std::string function, kind;
    std::string functionInF32;                   ///< CPU: the same without products of pairs of bf16, if there are any
    int64_t items = 0, scratchBytes = 0;         ///< CPU
    int64_t grid = 0, block = 0, numBuffers = 0; ///< CUDA
    int64_t sharedBytes = 0;                     ///< CUDA: dynamic shared memory of a block
    /// CUDA: the buffers of the op for which the kernel was written. Empty if several ops share the kernel.
    llvm::SmallVector<CountedBuffer> buffers;
  };
  /// Returns kernel `part` of `op`. Generates it first if the set has no equal kernel. Fails with an error if no kernel
  /// can be generated for `op`.
  llvm::FailureOr<const Info *> get(mlir::Operation *op, unsigned part);
  /// Adds a CUDA kernel for several ops: `write` gets the emitter and the addresses of its `numBuffers` buffers.
  Info add(llvm::StringRef name, llvm::StringRef kind, int64_t numBuffers,
           llvm::function_ref<void(kernels::SimtEmitter &, mlir::ValueRange)> write);
  /// The number of kernels for `op`.
  unsigned numParts(mlir::Operation *op) const;

private:
  llvm::LogicalResult writeForCpu(mlir::Operation *op, unsigned part, Info &info);
  /// Writes one form of a kernel. The form may multiply pairs of bf16 if `mayPair` is true. Returns whether it does.
  llvm::FailureOr<bool> writeForm(mlir::Operation *op, unsigned part, llvm::StringRef name, bool mayPair, Info &info);
  mlir::gpu::GPUFuncOp newCudaKernel(mlir::Location loc, llvm::StringRef name, int64_t numBuffers);
  llvm::LogicalResult writeForCuda(mlir::Operation *op, unsigned part, Info &info);

  mlir::ModuleOp output;
  KernelTarget target;
  mlir::gpu::GPUModuleOp device;
  llvm::StringMap<Info> kernels;
  int64_t written = 0;
};

} // namespace pc

#endif
