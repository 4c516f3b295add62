//===- Images.cpp - compileGpuModule ----------------------------------------------------------===//
#include "Images.h"
#include "Compile.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace mlir;
using namespace pc::toolchain;

/// Threads of a block, kernel by kernel, where the kernel states them.
static llvm::StringMap<int64_t> statedThreads(const llvm::Module &module) {
  llvm::StringMap<int64_t> threads;
  for (const llvm::Function &function : module)
    for (StringRef name : {"nvvm.maxntid", "nvvm.reqntid"})
      if (function.hasFnAttribute(name)) {
        int64_t product = 1;
        for (StringRef part : llvm::split(function.getFnAttribute(name).getValueAsString(), ',')) {
          int64_t dim = 1;
          part.trim().getAsInteger(10, dim);
          product *= dim;
        }
        threads[function.getName()] = product;
      }
  return threads;
}

FailureOr<SmallVector<pc::GpuImage>> pc::compileGpuModule(mlir::gpu::GPUModuleOp module,
                                                          const GpuTargetOptions &options) {
  SmallVector<Arch> archs;
  for (const std::string &name : options.archs) {
    std::optional<Arch> arch = parseArch(name);
    if (!arch)
      return module.emitError() << "unknown GPU architecture " << name << " (sm_80 or newer, as in sm_90a)";
    archs.push_back(*arch);
  }
  if (archs.empty())
    return module.emitError() << "no GPU architecture to compile for";
  const Arch &lowest = *llvm::min_element(archs, [](const Arch &a, const Arch &b) { return a.number < b.number; });
  Arch base = *parseArch("sm_" + std::to_string(lowest.number));

  Toolkit toolkit = findToolkit(options.cudaPath);
  OwningOpRef<ModuleOp> lowered = lowerToNVVM(module);
  if (!lowered)
    return failure();
  auto device = *lowered->getOps<mlir::gpu::GPUModuleOp>().begin();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> ir = deviceModule(device, base, toolkit, context);
  if (!ir)
    return failure();
  FailureOr<std::string> basePtx = emitPtx(module, llvm::CloneModule(*ir), base);
  if (failed(basePtx))
    return failure();

  SmallVector<GpuImage> images;
  if (options.emitCubins && toolkit.ptxas.empty()) {
    module.emitRemark() << "no ptxas (looked in " << toolkit.searched
                        << "): the images hold PTX alone, which the driver compiles when the program starts";
  } else if (options.emitCubins) {
    SmallVector<std::string> texts;
    for (const Arch &arch : archs) {
      FailureOr<std::string> text = arch.name == base.name ? *basePtx : emitPtx(module, llvm::CloneModule(*ir), arch);
      if (failed(text))
        return failure();
      texts.push_back(std::move(*text));
    }
    if (failed(assemble(module, toolkit.ptxas, archs, texts, images)))
      return failure();
  }
  llvm::StringMap<int64_t> threads = statedThreads(*ir);
  for (GpuImage &image : images)
    for (GpuKernelUse &use : image.use)
      use.threads = threads.lookup(use.kernel);
  basePtx->push_back('\0');
  images.push_back({GpuImageKind::Ptx, base.number, false, std::move(*basePtx), {}});
  if (options.emitHostImage) {
    FailureOr<std::string> host = emitHostImage(module, std::move(ir));
    if (failed(host))
      return failure();
    images.push_back({GpuImageKind::Host, 0, false, std::move(*host), {}});
  }
  return images;
}
