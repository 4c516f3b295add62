//===- Device.cpp - NVVM -> NVPTX LLVM IR -> PTX ----------------------------------------------===//
// Translates to LLVM IR, links the math functions that kernels call, optimizes, and writes PTX. If CUDA's libdevice is
// not installed, our own small library replaces it, so that a machine without CUDA can compile for one with CUDA.
//===-----------------------------------------------------------------------------===//
#include "../Native/LlvmPasses.h"
#include "Compile.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Transforms/IPO/Internalize.h"

using namespace mlir;

/// LLVM's code generator for the architecture, or null with the reason in `error`.
static std::unique_ptr<llvm::TargetMachine> deviceMachine(const pc::toolchain::Arch &arch, std::string &error) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, arch.name, arch.ptx, llvm::TargetOptions(), std::nullopt, std::nullopt,
                                  llvm::CodeGenOptLevel::Aggressive));
}

/// Links the functions of libdevice that `module` uses or, without libdevice, our own. Sine and cosine are always our
/// own, because those of libdevice contain inline PTX, which the stand-in cannot run, and GPUs should run the code that
/// is tested there. Reads no library if the module uses none.
static LogicalResult linkMath(Operation *op, llvm::Module &module, const pc::toolchain::Toolkit &toolkit) {
  auto missing = [&]() -> StringRef {
    for (llvm::Function &function : module)
      if (function.isDeclaration() && function.getName().starts_with("__nv_"))
        return function.getName();
    return "";
  };
  llvm::SMDiagnostic diagnostic;
  auto link = [&](std::unique_ptr<llvm::Module> library, StringRef name) -> LogicalResult {
    if (!library)
      return op->emitError() << "cannot read " << name << ": " << diagnostic.getMessage();
    library->setTargetTriple(module.getTargetTriple());
    library->setDataLayout(module.getDataLayout());
    // Functions of the library are internal to the module, so that unused ones are removed.
    auto internalize = [](llvm::Module &linked, const llvm::StringSet<> &names) {
      llvm::internalizeModule(
          linked, [&](const llvm::GlobalValue &value) { return !value.hasName() || !names.count(value.getName()); });
    };
    if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::LinkOnlyNeeded, internalize))
      return op->emitError() << "cannot link " << name;
    return success();
  };
  auto ofText = [&](StringRef text) { return llvm::parseAssemblyString(text, diagnostic, module.getContext()); };
  if (module.getFunction("__nv_sinf") || module.getFunction("__nv_cosf"))
    if (failed(link(ofText(pc::toolchain::sineLibrary()), "the library of sine and cosine")))
      return failure();
  if (missing().empty())
    return success();
  if (!toolkit.libdevice.empty())
    return link(llvm::parseIRFile(toolkit.libdevice, diagnostic, module.getContext()), toolkit.libdevice);
  // Without CUDA's library we use our own, which has the functions that emitters call.
  if (failed(link(ofText(pc::toolchain::mathLibrary()), "the math library")))
    return failure();
  if (!missing().empty())
    return op->emitError() << "the kernels call the functions " << missing()
                           << " of CUDA's libdevice, but there is no libdevice.10.bc (looked in " << toolkit.searched
                           << "); install the CUDA toolkit, or set CUDA_HOME to its directory";
  return success();
}

/// Translates the module, links the functions of the math library, and optimizes.
std::unique_ptr<llvm::Module> pc::toolchain::deviceModule(mlir::gpu::GPUModuleOp lowered, const Arch &arch,
                                                          const Toolkit &toolkit, llvm::LLVMContext &context) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  lowered.getContext()->appendDialectRegistry(registry);
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = deviceMachine(arch, error);
  if (!machine) {
    lowered.emitError() << "this LLVM has no code generator for NVPTX: " << error;
    return nullptr;
  }
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(lowered, context, lowered.getName());
  if (!module) {
    lowered.emitError() << "translation to LLVM IR failed";
    return nullptr;
  }
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  // Dynamic shared memory must be an external array; the translation makes it a static variable of one byte.
  for (llvm::GlobalVariable &global : module->globals())
    if (global.getName().starts_with("__dynamic_shmem__")) {
      global.setLinkage(llvm::GlobalValue::ExternalLinkage);
      global.setInitializer(nullptr);
    }
  if (failed(linkMath(lowered, *module, toolkit)))
    return nullptr;
  pc::runLlvmPasses(*module, machine.get(), llvm::OptimizationLevel::O3);
  return module;
}

/// Debug information is removed before code is generated.
FailureOr<std::string> pc::toolchain::emitPtx(Operation *op, std::unique_ptr<llvm::Module> module, const Arch &arch) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = deviceMachine(arch, error);
  if (!machine)
    return op->emitError() << "this LLVM has no code generator for NVPTX: " << error;
  llvm::StripDebugInfo(*module);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return op->emitError() << "LLVM's NVPTX code generator cannot write assembly";
  passes.run(*module);
  return text.str().str();
}
