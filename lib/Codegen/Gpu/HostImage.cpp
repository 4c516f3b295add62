//===- HostImage.cpp - NVPTX LLVM IR -> a shared object for this machine ----------------------===//
// The target is always x86-64-v3, without AVX512-BF16, whose conversions flush subnormals, unlike GPUs. The IR has
// already been optimized for NVPTX. Code generation favours compile time, because most images run once, in tests.
//===------------------------------------------------------------------------------------------===//
#include "../Native/LlvmPasses.h"
#include "Compile.h"
#include "HostPass.h"
#include "pcrt/host_image.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Transforms/Scalar/ScalarizeMaskedMemIntrin.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace mlir;
namespace fs = llvm::sys::fs;

/// Code for x86-64-v3 (AVX2), since the image may run on another machine.
static std::unique_ptr<llvm::TargetMachine> hostMachine(std::string &error) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, "x86-64-v3", "", llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::None));
}

/// Links an object to a shared object by ld.lld.
static FailureOr<std::string> linkShared(Operation *op, StringRef object) {
  auto linker = llvm::sys::findProgramByName("ld.lld-22");
  if (!linker)
    linker = llvm::sys::findProgramByName("ld.lld");
  if (!linker)
    return op->emitError() << "linking the host image needs ld.lld-22 or ld.lld, but neither is in PATH; install lld";
  SmallString<128> in, out, log;
  // The linker reads and writes only files.
  auto remove = llvm::scope_exit([&] {
    for (StringRef file : {in, out, log})
      if (!file.empty())
        fs::remove(file);
  });
  for (auto [file, suffix] : {std::pair(&in, "o"), {&out, "so"}, {&log, "log"}})
    if (std::error_code code = fs::createTemporaryFile("pc-host-image", suffix, *file))
      return op->emitError() << "cannot make a temporary file: " << code.message();
  std::error_code code;
  llvm::raw_fd_ostream stream(in, code);
  stream << object;
  stream.close();
  if (code || stream.has_error()) {
    stream.clear_error();
    return op->emitError() << "cannot write " << in;
  }
  // The paths of the child's stdin, stdout and stderr; "" is /dev/null.
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  std::string error;
  int status = llvm::sys::ExecuteAndWait(*linker, {*linker, "-shared", "--gc-sections", "-s", in, "-o", out},
                                         std::nullopt, redirects, 0, 0, &error);
  auto words = llvm::MemoryBuffer::getFile(log);
  auto image = llvm::MemoryBuffer::getFile(out);
  if (status != 0 || !image)
    return op->emitError() << "cannot link the host image: " << error
                           << (words ? (*words)->getBuffer().trim() : StringRef());
  return (*image)->getBuffer().str();
}

/// The image contains the code in two variants and the table that describes both to the stand-in.
FailureOr<pc::GpuImage> pc::toolchain::emitHostImage(Operation *op, std::unique_ptr<llvm::Module> module,
                                                     const llvm::StringMap<std::string> &sources) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = hostMachine(error);
  if (!machine)
    return op->emitError() << "host images need LLVM's code generator for x86-64, which this LLVM lacks: " << error;
  pc::runLlvmPasses(*module, nullptr,
                    [](llvm::PassBuilder &) { // masked loads and stores become plain loads and stores, as for NVPTX
                      llvm::ModulePassManager passes;
                      passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ScalarizeMaskedMemIntrinPass()));
                      return passes;
                    });
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  std::unique_ptr<llvm::Module> checked = llvm::CloneModule(*module);
  std::vector<HostSite> sites;
  std::vector<HostKernel> kernels;
  size_t checkedSites = 0;
  // Emits two variants: one that runs fast, and one that checks every access.
  for (bool check : {false, true}) {
    checkedSites = sites.size();
    llvm::Module &variant = check ? *checked : *module;
    auto rewritten = rewriteForHost(variant, check, check ? ".checked" : "", sites);
    if (!rewritten)
      return op->emitError() << llvm::toString(rewritten.takeError());
    kernels = std::move(*rewritten);
    llvm::StripDebugInfo(variant);
  }
  for (HostSite &site : sites)
    if (auto source = sources.find(site.kernel); source != sources.end())
      site.text += " of " + source->second;
  if (llvm::Linker::linkModules(*module, std::move(checked)))
    return op->emitError() << "cannot link the variants of the host image into one module";
  addHostTable(*module, kernels, sites, "", ".checked");
  llvm::raw_string_ostream broken(error);
  if (llvm::verifyModule(*module, &broken))
    return op->emitError() << "internal error: the host pass wrote invalid IR: " << error;
  SmallString<0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return op->emitError() << "LLVM's x86-64 code generator cannot write object files";
  passes.run(*module);
  FailureOr<std::string> image = linkShared(op, object.str());
  if (failed(image))
    return failure();
  GpuImage result{GpuImageKind::Host, 0, false, std::move(*image), {}, {}};
  for (size_t i = checkedSites; i < sites.size(); ++i)
    if (llvm::is_contained({PCRT_SITE_BARRIER, PCRT_SITE_SYNCWARP, PCRT_SITE_WAIT}, sites[i].kind))
      result.sites.push_back({int64_t(i), sites[i].kernel, sites[i].text});
  return result;
}
