//===- pc-advise.cpp - Advice about the number of ranks -------------------===//
// Reads a model program (pc-import), searches plans for every number of --ranks, and prints the advice as text or JSON.
// The exit codes are those of pc-compile.
//===----------------------------------------------------------------------===//
#include "Advice.h"

#include "pc/Driver/Origin.h"
#include "pc/Driver/Registration.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("pc-advise options");
static cl::opt<std::string> input(cl::Positional, cl::desc("<model.mlir>"), cl::Required, cl::cat(category));
static cl::list<int64_t> ranks("ranks", cl::CommaSeparated, cl::OneOrMore, cl::desc("Numbers of ranks, as in 1,8,64"),
                               cl::cat(category));
static cl::opt<std::string> machine("machine", cl::desc("Machine, as for pc-compile --machine (default cpu)"),
                                    cl::init("cpu"), cl::cat(category));
static cl::opt<double> tokens("tokens", cl::desc("Number of tokens of the whole training run, as in 1e12"), cl::init(0),
                              cl::cat(category));
static cl::opt<std::string>
    flags("flags", cl::desc("Flags of pc-compile that every plan keeps: \"precision=bf16 zero=1\""), cl::cat(category));
static cl::opt<std::string> format("format", cl::desc("Output format: text or json (default text)"), cl::init("text"),
                                   cl::cat(category));

static int fail(pcrt_status status, const llvm::Twine &message) {
  pc::errs() << "pc-advise: error: " << message << "\n";
  return status;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-advise");
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(argc, argv,
                                   "pc-advise: estimates step time and memory of a model for several numbers of ranks, "
                                   "with the best plan for each\n",
                                   &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (llvm::any_of(ranks, [](int64_t n) { return n < 1; }) || tokens < 0 || (format != "text" && format != "json"))
    return fail(PCRT_USAGE,
                "--ranks must be positive, --tokens must not be negative, and --format must be text or json");
  mlir::MLIRContext context(registry);
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-advise", sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> model = pc::parseProgram(input, sources, &context);
  if (!model)
    return PCRT_BAD_INPUT;
  mlir::FailureOr<pc::Origin> origin = pc::originOf(*model);
  if (failed(origin))
    return PCRT_BAD_INPUT;
  if (origin->phase != pc::Phase::Model)
    return fail(PCRT_BAD_INPUT, "the input must be a model program; make one with pc-import");
  pc::AdviceOptions options{{ranks.begin(), ranks.end()}, "machine=" + machine + " " + flags, tokens};
  pc::Advice advice;
  if (pcrt_status status = pc::advise(*model, options, advice, message))
    return message.empty() ? status : fail(status, message);
  if (format == "text")
    advice.print(llvm::outs());
  else
    llvm::outs() << llvm::formatv("{0:2}\n", llvm::json::Value(advice.json()));
  return PCRT_OK;
}
