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
static cl::list<int64_t> ranks("ranks", cl::CommaSeparated, cl::OneOrMore, cl::desc("Numbers of ranks: 1,8,64"),
                               cl::cat(category));
static cl::opt<std::string> machine("machine", cl::desc("As of pc-compile (default cpu)"), cl::init("cpu"),
                                    cl::cat(category));
static cl::opt<double> tokens("tokens", cl::desc("Tokens of a whole training run, as 1e12"), cl::init(0),
                              cl::cat(category));
static cl::opt<std::string>
    flags("flags", cl::desc("Flags of pc-compile that every plan keeps: \"precision=bf16 zero=1\""), cl::cat(category));
static cl::opt<std::string> format("format", cl::desc("text or json (default text)"), cl::init("text"),
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
  if (!cl::ParseCommandLineOptions(
          argc, argv, "pc-advise: what a model takes on numbers of ranks, and the best plan of each\n", &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (llvm::any_of(ranks, [](int64_t n) { return n < 1; }) || tokens < 0 || (format != "text" && format != "json"))
    return fail(PCRT_USAGE, "--ranks are positive, --tokens is not negative, --format is text or json");
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
    return fail(PCRT_BAD_INPUT, "a model program is needed, as pc-import writes it");
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
