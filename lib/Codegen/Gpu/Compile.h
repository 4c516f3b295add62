//===- Compile.h - The steps of compileGpuModule ----------------------------------------------===//
// The steps are: gpu.module, NVVM dialect, LLVM IR for NVPTX, PTX, and cubins by ptxas. The same LLVM IR is also
// compiled to a shared object for the stand-in. Images.cpp calls the steps in this order. Errors are emitted at the op.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_GPU_COMPILE_H
#define PC_LIB_CODEGEN_GPU_COMPILE_H

#include "Images.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace pc::toolchain {

/// A GPU architecture, by its name.
struct Arch {
  std::string name;      ///< sm_90a
  int32_t number = 0;    ///< 90
  bool specific = false; ///< the 'a' variant
  llvm::StringRef ptx;   ///< the oldest PTX version that supports it, as a feature: +ptx80
};

/// Parses sm_NN or sm_NNa, from sm_80 on; returns std::nullopt for other names.
std::optional<Arch> parseArch(llvm::StringRef name);

/// The paths of parts of the CUDA toolkit; a path is empty if the part was not found.
struct Toolkit {
  std::string ptxas, libdevice;
  std::string searched; ///< the searched places, for messages
};
Toolkit findToolkit(llvm::StringRef cudaPath);

/// Returns our own exp, log, tanh, erf and a few more of libdevice's functions for f32, as LLVM IR in text form. They
/// are linked if there is no libdevice.
llvm::StringRef mathLibrary();
/// Returns our own sine and cosine, which are always linked.
llvm::StringRef sineLibrary();

/// Returns a new module with the gpu.module, lowered to the LLVM and NVVM dialects. The original is not changed.
mlir::OwningOpRef<mlir::ModuleOp> lowerToNVVM(mlir::gpu::GPUModuleOp module);

/// Returns LLVM IR for NVPTX, linked with libdevice (or mathLibrary) and optimized for `arch` and all newer
/// architectures. Returns null after an error.
std::unique_ptr<llvm::Module> deviceModule(mlir::gpu::GPUModuleOp lowered, const Arch &arch, const Toolkit &toolkit,
                                           llvm::LLVMContext &context);

/// Returns the PTX text for `arch`. Consumes `module`. Fails if the code generator fails.
llvm::FailureOr<std::string> emitPtx(mlir::Operation *op, std::unique_ptr<llvm::Module> module, const Arch &arch);

/// Runs ptxas for all architectures in parallel. Each text becomes one cubin.
llvm::LogicalResult assemble(mlir::Operation *op, llvm::StringRef ptxas, llvm::ArrayRef<Arch> archs,
                             llvm::ArrayRef<std::string> texts, llvm::SmallVectorImpl<GpuImage> &images);

/// Parses the figures in the output of ptxas -v.
std::vector<GpuKernelUse> parsePtxasFigures(llvm::StringRef words);

/// Returns the shared object that the stand-in runs, made from the same IR. Consumes `module`. `sources` maps each
/// kernel to the name of the op that it implements, for reports.
llvm::FailureOr<GpuImage> emitHostImage(mlir::Operation *op, std::unique_ptr<llvm::Module> module,
                                        const llvm::StringMap<std::string> &sources);

} // namespace pc::toolchain

#endif
