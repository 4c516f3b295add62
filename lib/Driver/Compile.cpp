//===- Compile.cpp - From a model program to an executable ---------------------------------===//
#include "pc/Driver/Compile.h"

#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/ToolOutputFile.h"
#include "pc/IR/PC.h"

using namespace mlir;
using namespace pc;

/// Writes a file whole or says why not.
static pcrt_status writeFile(ModuleOp module, StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  std::string message;
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(path, &message);
  if (!file) {
    emitError(UnknownLoc::get(module.getContext())) << message;
    return PCRT_RESOURCE;
  }
  write(file->os());
  file->os().flush();
  if (file->os().has_error()) {
    emitError(UnknownLoc::get(module.getContext())) << "cannot write " << path << ": " << file->os().error().message();
    file->os().clear_error();
    return PCRT_RESOURCE;
  }
  file->keep();
  return PCRT_OK;
}

pcrt_status pc::compile(ModuleOp module, const CompileOptions &options) {
  if (!options.emitPlan.empty())
    if (pcrt_status status = writeFile(module, options.emitPlan,
                                       [&](llvm::raw_ostream &os) { os << options.plan.text(module.getContext()); }))
      return status;
  for (const PhaseInfo &info : phases()) {
    if (pcrt_status status = runPhase(module, info.phase, options))
      return status;
    if (info.phase == options.to)
      break;
  }
  if (options.to != Phase::Exe)
    return writeFile(module, options.output, [&](llvm::raw_ostream &os) {
      module->print(os, OpPrintingFlags().enableDebugInfo());
      os << "\n";
    });
  return PCRT_OK;
}
