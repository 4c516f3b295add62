//===- pc-compile.cpp - Compiles a program to a later phase or an executable -===//
// Reads a program of any phase, completes the plan by the search if flags ask for it, and runs the phases up to --to.
// All flags are those of lib/Driver/Flags.cpp; problems are reported with the exit codes of docs/command-line.md.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/Search/CompletePlan.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Output.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"

#include "mlir/IR/AsmState.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"

namespace cl = llvm::cl;
using pc::FlagGroup;
using pc::Phase;

static int fail(pcrt_status status, const llvm::Twine &message) {
  pc::errs() << "pc-compile: error: " << message << "\n";
  return status;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-compile");
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();

  cl::cat files(pc::categoryOf(FlagGroup::Output));
  cl::opt<std::string> input(cl::Positional, cl::desc("<model.mlir>"), cl::init("-"), files);
  cl::opt<std::string> output(
      "o", cl::desc("Output file for the executable, or for the IR of --to (default: standard output)"), cl::init("-"),
      files);
  cl::opt<Phase> to("to", cl::desc("Stop after this phase and print its IR"), cl::init(Phase::Exe), files);
  for (const pc::PhaseInfo &info : pc::phases())
    to.getParser().addLiteralOption(info.name, info.phase, info.description);
  cl::opt<std::string> emitPlan("emit-plan", cl::desc("Write the plan to this file"), cl::value_desc("file"), files);
  cl::opt<std::string> report(
      "report",
      cl::desc(
          "Write predicted memory and traffic to this file, as an HTML page if it ends in .html and as JSON otherwise"),
      cl::value_desc("file"), files);
  cl::opt<pc::Verify> verify(
      "verify", cl::desc("How the compiler checks its own work (default full)"), cl::init(pc::Verify::Full), files,
      cl::values(clEnumValN(pc::Verify::Full, "full", "prove that the program of each phase computes the step"),
                 clEnumValN(pc::Verify::Phase, "phase", "run the verifier at the end of each phase"),
                 clEnumValN(pc::Verify::None, "none", "run only the verifiers of the ops")));
  cl::opt<bool> verifyKernels(
      "verify-kernels", cl::desc("Compare all kernels of a CPU program with the interpreter, including large ones"),
      files);
  cl::opt<std::string> reference(
      "reference",
      cl::desc("File with the step program that this program must equal, or, for phase kernels, the planned program"),
      cl::value_desc("file"), files);
  cl::opt<bool> timing("timing", cl::desc("Print the time of every pass, like --mlir-timing"), files);
  cl::opt<bool> standIn("stand-in",
                        cl::desc("Add kernels for the emulated CUDA driver, for tests, and leave out cubins"),
                        cl::Hidden, cl::cat(pc::categoryOf(FlagGroup::Target)));
  pc::CompileFlags flags(/*ofTool=*/true);
  mlir::registerAsmPrinterCLOptions();
  mlir::registerMLIRContextCLOptions();
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();
  const cl::OptionCategory *groups[] = {&pc::categoryOf(FlagGroup::Plan), &pc::categoryOf(FlagGroup::Output),
                                        &pc::categoryOf(FlagGroup::Target), &pc::categoryOf(FlagGroup::Tuning)};
  cl::HideUnrelatedOptions(groups);
  std::string message;
  llvm::raw_string_ostream errors(message);
  std::vector<const char *> words = flags.words(argc, argv);
  if (!cl::ParseCommandLineOptions(
          static_cast<int>(words.size()), words.data(),
          "pc-compile: compiles a model program, or a program of a later phase, to an executable for N ranks\n\n"
          "--help-hidden also lists rare flags and MLIR's flags, such as --mlir-print-ir-after-all.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (!report.empty() && to < Phase::Planned)
    return fail(PCRT_USAGE, "--report describes a planned program and needs --to=planned, --to=kernels or --to=exe");
  if (to == Phase::Exe && output == "-")
    return fail(PCRT_USAGE, "the executable needs an output file; add -o FILE");

  std::vector<pcrt::NamedPath> inputs = flags.inputFiles();
  inputs.insert(inputs.end(), {{"the program", input}, {"--reference", reference}});
  std::vector<pcrt::NamedPath> outputs = {{"-o", output}, {"--report", report}, {"--emit-plan", emitPlan}};
  if (failed(pc::checkOutputs("pc-compile", inputs, outputs)))
    return PCRT_USAGE;

  mlir::MLIRContext context(registry);
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-compile", sources, &context);
  mlir::DefaultTimingManager times;
  mlir::applyDefaultTimingManagerCLOptions(times);
  times.setEnabled(times.isEnabled() || timing);
  mlir::TimingScope whole = times.getRootScope();

  mlir::OwningOpRef<mlir::ModuleOp> module = pc::parseProgram(input, sources, &context);
  if (!module)
    return PCRT_BAD_INPUT;
  for (pc::ProgramOp program : module->getOps<pc::ProgramOp>())
    if (auto weights = program.getWeights();
        weights && failed(pc::checkOutputs("pc-compile", pcrt::filesOfModel("the weights", weights->str()), outputs)))
      return PCRT_USAGE;
  mlir::FailureOr<pc::Origin> origin = pc::originOf(*module);
  if (failed(origin))
    return PCRT_BAD_INPUT;
  pc::CompileOptions options;
  if (pcrt_status status = flags.resolve(&context, options, message, *origin))
    return message.empty() ? status : fail(status, message);
  if (standIn && !options.cuda())
    return fail(PCRT_USAGE, "--stand-in replaces a GPU and needs --target=cuda");
  if (to < origin->phase)
    return fail(PCRT_USAGE, "--to=" + pc::nameOf(to) + " is before phase '" + pc::nameOf(origin->phase) +
                                "' of this program; name a later phase");
  if (!reference.empty() && (verify != pc::Verify::Full || to < pc::Phase::Step))
    return fail(PCRT_USAGE, "--reference needs --verify=full and a phase from step to kernels");
  if (!report.empty() && origin->phase > pc::Phase::Planned)
    return fail(PCRT_USAGE, "--report needs a program of phase 'planned' or earlier");
  if (verifyKernels && (options.cuda() || to != Phase::Exe || origin->phase > Phase::Planned))
    return fail(PCRT_USAGE,
                "--verify-kernels needs --target=cpu, --to=exe and a program of phase 'planned' or earlier; "
                "compare CUDA kernels with --check-kernels on a device");
  options.to = to;
  options.output = output;
  options.verify = verify;
  options.verifyKernels = verifyKernels;
  options.emitPlan = emitPlan;
  options.report = report;
  options.reference = reference;
  options.timing = &whole;
  options.standIn = standIn;
  if (pcrt_status status = origin->phase == Phase::Model ? pc::changeModel(*module, options) : PCRT_OK)
    return status;
  if (pcrt_status status = pc::completePlan(*module, origin->phase, options))
    return status;
  return pc::compile(*module, origin->phase, options);
}
