//===- pc-opt.cpp - Runs the passes of every room on IR files -------------===//
// MlirOptMain with the exit codes of the other tools: 2 for a bad command line, 3 for bad IR or a pass that refuses it.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Registration.h"
#include "pc/Proof/Digest.h"
#include "pc/Search/Passes.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Output.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

namespace cl = llvm::cl;

namespace {
/// The first pass, which finds out whether the file is a program that a tool has written.
struct FindDigest : mlir::PassWrapper<FindDigest, mlir::OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FindDigest)
  explicit FindDigest(std::shared_ptr<bool> isWritten) : isWritten(std::move(isWritten)) {}
  void runOnOperation() override {
    auto module = llvm::dyn_cast<mlir::ModuleOp>(getOperation());
    *isWritten = module && !pc::wasEdited(module).value_or(true);
  }
  std::shared_ptr<bool> isWritten;
};

/// The last pass, which drops the lines of the input file from locations, because passes are not edits.
struct DropLines : mlir::PassWrapper<DropLines, mlir::OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DropLines)
  explicit DropLines(std::shared_ptr<bool> isWritten) : isWritten(std::move(isWritten)) {}
  void runOnOperation() override {
    pc::dropLines(getOperation());
    if (*isWritten)
      pc::noteDigest(llvm::cast<mlir::ModuleOp>(getOperation()));
  }
  std::shared_ptr<bool> isWritten;
};
} // namespace

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-opt");
  // --help shows passes and what MLIR does with them; --help-hidden also what LLVM's code generators bring.
  cl::Option *help = cl::getRegisteredOptions().lookup("help");
  for (auto &entry : cl::getRegisteredOptions())
    if (!help || entry.second->Categories != help->Categories)
      entry.second->setHiddenFlag(cl::Hidden);
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::escapeDiagnostics(registry);
  pc::registerPasses();
  pc::registerSearchPasses();

  cl::opt<std::string> input(cl::Positional, cl::desc("<input file>"), cl::init("-"));
  cl::opt<std::string> output("o", cl::desc("Output file"), cl::value_desc("file"), cl::init("-"));
  mlir::MlirOptMainConfig::registerCLOptions(registry);
  mlir::registerAsmPrinterCLOptions();
  mlir::registerMLIRContextCLOptions();
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();

  // Messages name ops and tensors; a dump of the op (for a pass, of the whole module) is printed only on request.
  if (cl::Option *print = cl::getRegisteredOptions().lookup("mlir-print-op-on-diagnostic"))
    static_cast<cl::opt<bool> *>(print)->setValue(false);

  // If the parser has a stream for its errors, it returns instead of ending the process with 1.
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(argc, argv,
                                   "pc-opt: runs passes on IR files, for example\n\n  pc-opt model.mlir "
                                   "--pc-phase-step=mesh=dp=2 --pc-phase-placed=mesh=dp=2\n  pc-opt step.mlir "
                                   "--pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-verify-placed\n",
                                   &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  mlir::MlirOptMainConfig config = mlir::MlirOptMainConfig::createFromCLOptions();
  // A bad pass option is found when the pipeline is built, which MlirOptMain does after it has read the file.
  {
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    mlir::PassManager passes(&context);
    if (mlir::failed(config.setupPassPipeline(passes)))
      return PCRT_USAGE;
  }
  if (config.shouldShowDialects() || config.shouldListPasses()) // which reads nothing
    return mlir::succeeded(mlir::MlirOptMain(argc, argv, input, output, registry)) ? PCRT_OK : PCRT_BAD_INPUT;
  if (failed(pc::checkOutputs("pc-opt", {{"the program", input}}, {{"-o", output}})))
    return PCRT_USAGE;
  std::unique_ptr<llvm::MemoryBuffer> buffer = pc::readSource(input, config.inputSplitMarker());
  if (!buffer)
    return PCRT_BAD_INPUT;
  mlir::MlirOptMainConfig whole = config;
  whole.setPassPipelineSetupFn([&](mlir::PassManager &passes) {
    auto isWritten = std::make_shared<bool>(false);
    passes.addPass(std::make_unique<FindDigest>(isWritten));
    if (mlir::failed(config.setupPassPipeline(passes)))
      return mlir::failure();
    passes.addPass(std::make_unique<DropLines>(isWritten));
    return mlir::success();
  });
  bool good = false;
  std::string why = pc::writeOutput(output, [&](llvm::raw_ostream &os) {
    return good = mlir::succeeded(mlir::MlirOptMain(os, std::move(buffer), registry, whole));
  });
  if (why.empty())
    return good ? PCRT_OK : PCRT_BAD_INPUT;
  pc::errs() << "pc-opt: error: " << why << "\n";
  return PCRT_RESOURCE;
}
