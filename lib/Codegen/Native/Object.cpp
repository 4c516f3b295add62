//===- Object.cpp - LLVM dialect -> object file ----------------------------------------------===//
// Lowers a module, translates it to LLVM IR, optimizes the kernels, and writes an object file for this machine or, for
// CUDA programs, for any x86-64 CPU with AVX2. Steps consist only of calls, so they are compiled without optimization.
//===-----------------------------------------------------------------------------===//
#include "LlvmPasses.h"
#include "Lower.h"
#include "pc/Codegen/Codegen.h"
#include "pcrt/pcrt.h"
#include "pcrt/version.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;

int64_t pc::nativeLanes() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx512f") ? 16 : 8;
}

bool pc::nativeRoundsToBf16() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx512bf16") && features.lookup("avx512vl");
}

/// The target: this machine with all its features, or x86-64-v3 for programs that run on other machines.
static std::unique_ptr<llvm::TargetMachine> hostMachine(bool portable, llvm::CodeGenOptLevel level,
                                                        std::string &error) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  std::string features;
  bool any = portable && triple.getArch() == llvm::Triple::x86_64;
  for (const auto &feature : any ? llvm::StringMap<bool>() : llvm::sys::getHostCPUFeatures())
    features += (features.empty() ? "" : ",") + std::string(feature.second ? "+" : "-") + feature.first().str();
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, any ? "x86-64-v3" : llvm::sys::getHostCPUName(), features,
                                  llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, level));
}

/// All functions get the CPU's features. The step is a straight line of calls, so only kernels are optimized.
static void optimize(llvm::Module &module, llvm::TargetMachine &machine, int64_t lanes) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", std::to_string(lanes * 32));
    if (pc::isStep(function.getName())) { // straight-line calls, for which optimization gains nothing
      function.addFnAttr(llvm::Attribute::OptimizeNone);
      function.addFnAttr(llvm::Attribute::NoInline);
    }
  }
  pc::optimizeKernels(module, machine);
}

/// Lowers the module, translates it to LLVM IR, optimizes, and writes the object file.
LogicalResult pc::emitObject(ModuleOp module, int64_t lanes, bool portable, StringRef path) {
  if (failed(lowerToLLVM(module)))
    return failure();
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(module, context);
  if (!llvmModule)
    return module.emitError() << "translation to LLVM IR failed";
  // The version is added here, because the output of phase `kernels` must not depend on the commit.
  auto *compiler =
      llvm::ConstantDataArray::getString(context, pcrt_version + std::string(", LLVM " LLVM_VERSION_STRING));
  new llvm::GlobalVariable(*llvmModule, compiler->getType(), /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage,
                           compiler, "pc_compiler");
  bool hasKernels = llvm::any_of(*llvmModule, [](const llvm::Function &function) {
    return !function.isDeclaration() && !pc::isStep(function.getName());
  });
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      hostMachine(portable, hasKernels ? llvm::CodeGenOptLevel::Aggressive : llvm::CodeGenOptLevel::None, error);
  if (!machine)
    return module.emitError() << "LLVM has no code generator for this machine: " << error;
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  // The runtime reads the tables as C structs, so both must use the same layout.
  const llvm::GlobalVariable *program = llvmModule->getGlobalVariable("pc_program");
  if (program && llvmModule->getDataLayout().getTypeAllocSize(program->getValueType()) != sizeof(pcrt_program))
    return module.emitError() << "internal error: on the target machine, the program's tables have a different layout "
                                 "than in the compiler";
  optimize(*llvmModule, *machine, lanes);
  std::error_code code;
  llvm::raw_fd_ostream file(path, code, llvm::sys::fs::OF_None);
  if (code)
    return module.emitError() << "cannot write " << path << ": " << code.message();
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, file, nullptr, llvm::CodeGenFileType::ObjectFile))
    return module.emitError() << "this machine's code generator cannot write object files";
  passes.run(*llvmModule);
  file.flush();
  if (file.has_error()) {
    error = file.error().message();
    file.clear_error();
    return module.emitError() << "cannot write " << path << ": " << error;
  }
  return success();
}
