//===- pc-opt.cpp - Runs the passes of every room on IR files ----------------------===//
// MlirOptMain with the exit codes of the other tools: 2 for a bad command line, 3 for bad IR or a pass that refuses it.
#include "pc/Driver/Registration.h"
#include "pcrt/pcrt.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"

namespace cl = llvm::cl;

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();

  cl::opt<std::string> input(cl::Positional, cl::desc("<input file>"), cl::init("-"));
  cl::opt<std::string> output("o", cl::desc("Output file"), cl::value_desc("file"), cl::init("-"));
  mlir::MlirOptMainConfig::registerCLOptions(registry);
  mlir::registerAsmPrinterCLOptions();
  mlir::registerMLIRContextCLOptions();
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();

  // Messages name ops and tensors; a dump of the op (of a whole module, for a pass) helps nobody unless asked for.
  if (cl::Option *print = cl::getRegisteredOptions().lookup("mlir-print-op-on-diagnostic"))
    static_cast<cl::opt<bool> *>(print)->setValue(false);

  // With a stream for its errors the parser returns instead of ending the process with 1.
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(argc, argv, "pc-opt: runs passes on IR files\n", &errors)) {
    llvm::errs() << message;
    return PCRT_USAGE;
  }
  // A bad pass option is met when the pipeline is built, which MlirOptMain does after it has read the file.
  {
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    mlir::PassManager passes(&context);
    if (mlir::failed(mlir::MlirOptMainConfig::createFromCLOptions().setupPassPipeline(passes)))
      return PCRT_USAGE;
  }
  return mlir::succeeded(mlir::MlirOptMain(argc, argv, input, output, registry)) ? PCRT_OK : PCRT_BAD_INPUT;
}
