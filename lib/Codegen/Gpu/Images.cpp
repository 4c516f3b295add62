//===- Images.cpp - compileGpuModule ----------------------------------------------------------===//
// Makes one PTX text for the oldest architecture, which newer drivers compile at load time, and a cubin for each
// architecture if ptxas is installed. Kernels with wgmma exist only for sm_90a, so such a module has no portable PTX.
//===-----------------------------------------------------------------------------===//
#include "Images.h"
#include "Compile.h"
#include "WarpgroupAsm.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace mlir;
using namespace pc::toolchain;

/// Sorts ptxas's figures by the order of the kernels and adds the threads of a block, if the kernel states them.
static void complete(std::vector<pc::GpuKernelUse> &figures, const llvm::Module &module) {
  llvm::StringMap<pc::GpuKernelUse> byName;
  for (pc::GpuKernelUse &use : figures)
    byName[use.kernel] = use;
  figures.clear();
  for (const llvm::Function &function : module) {
    auto use = byName.find(function.getName());
    if (use == byName.end())
      continue;
    for (StringRef name : {"nvvm.maxntid", "nvvm.reqntid"})
      if (function.hasFnAttribute(name)) {
        use->second.threads = 1;
        for (StringRef part : llvm::split(function.getFnAttribute(name).getValueAsString(), ',')) {
          int64_t dim = 1;
          part.trim().getAsInteger(10, dim);
          use->second.threads *= dim;
        }
      }
    figures.push_back(use->second);
  }
}

/// Maps each kernel to the name of the op that it implements, if the kernel's location has it.
static llvm::StringMap<std::string> sourceNames(mlir::gpu::GPUModuleOp module) {
  llvm::StringMap<std::string> names;
  module.walk([&](mlir::gpu::GPUFuncOp function) {
    Location(function.getLoc())->walk([&](Location location) {
      auto name = dyn_cast<NameLoc>(location);
      if (!name)
        return WalkResult::advance();
      names[function.getName()] = name.getName().str();
      return WalkResult::interrupt();
    });
  });
  return names;
}

/// The IR is built and optimized once, for the lowest architecture. PTX and cubins for all architectures are generated
/// from it.
FailureOr<SmallVector<pc::GpuImage>> pc::compileGpuModule(mlir::gpu::GPUModuleOp module,
                                                          const GpuTargetOptions &options) {
  SmallVector<Arch> archs;
  for (const std::string &name : options.archs) {
    std::optional<Arch> arch = parseArch(name);
    if (!arch)
      return module.emitError() << "unknown GPU architecture " << name << "; expected sm_80 or newer, as in sm_90a";
    archs.push_back(*arch);
  }
  if (archs.empty())
    return module.emitError() << "there is no GPU architecture to compile for; name one, as in --arch=sm_90a";
  // The IR is optimized once, for the lowest architecture; PTX for another one comes from the same IR.
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
  // PTX with wgmma runs only on one architecture, not on newer ones.
  if (usesWarpgroups(*ir)) {
    for (const Arch &arch : archs)
      if (arch.number != 90 || !arch.specific)
        return module.emitError() << "kernels that use warpgroup matrix products (wgmma) run only on sm_90a, not on "
                                  << arch.name;
    base = archs[0];
  }
  FailureOr<std::string> basePtx = emitPtx(module, llvm::CloneModule(*ir), base);
  if (failed(basePtx))
    return failure();

  SmallVector<GpuImage> images;
  if (options.emitCubins && toolkit.ptxas.empty()) {
    module.emitRemark() << "ptxas was not found (looked in " << toolkit.searched
                        << "): the program contains only PTX, which the driver compiles when the program starts";
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
  for (GpuImage &image : images)
    complete(image.use, *ir);
  // PTX is included in addition to cubins, so that drivers can compile it for newer devices.
  basePtx->push_back('\0');
  images.push_back({GpuImageKind::Ptx, base.number, base.specific, std::move(*basePtx), {}, {}});
  if (options.emitHostImage) {
    FailureOr<GpuImage> host = emitHostImage(module, std::move(ir), sourceNames(module));
    if (failed(host))
      return failure();
    images.push_back(std::move(*host));
  }
  return images;
}
