//===- pc-random.cpp - Tests all passes with random models and plans ------===//
// For every seed, a random model, mesh and order of tactics goes through the compiler pass by pass. After each pass the
// interpreter must compute the same as before it, the program must be proved against the step program, and a placed
// program must erase to that program's text.
//===----------------------------------------------------------------------===//
#include "Golden.h"
#include "PlanCheck.h"
#include "Triple.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/AnyOp.h"
#include "pc/Proof/Proof.h"
#include "pc/Reference/Interpreter.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/SourceMgr.h"

namespace cl = llvm::cl;
using namespace mlir;

static cl::OptionCategory category("pc-random options");
static cl::opt<uint64_t> seed("seed", cl::desc("The first seed"), cl::init(1), cl::cat(category));
static cl::opt<int64_t> count("count", cl::desc("How many seeds"), cl::init(1), cl::cat(category));
static cl::opt<bool> print("print", cl::desc("Print the model and the passes instead of checking them"),
                           cl::cat(category));
static cl::opt<std::string> golden("write",
                                   cl::desc("Write what compiled programs must compute into this folder (Golden.h) and "
                                            "print the sizes and flags of the compile"),
                                   cl::value_desc("dir"), cl::cat(category));
static cl::opt<bool>
    programs("programs",
             cl::desc("Programs that no importer writes, compiled with random flags: each computes what "
                      "it computes on one device, or is refused"),
             cl::cat(category));
static cl::opt<double> tolerance("tolerance", cl::desc("Largest relative difference"), cl::init(1e-9),
                                 cl::cat(category));

namespace {

/// Runs one triple through the passes.
class Check {
public:
  Check(MLIRContext &context, const Triple &triple) : context(context), triple(triple) {}

  /// Runs one case. Returns what went wrong, or nothing.
  std::string run() {
    module = triple.model(&context);
    if (!module)
      return "the model cannot be imported";
    if (std::string error = interpretNow("import"); !error.empty())
      return error;
    drops = pc::anyOp(*module, [](Operation *op) {
      auto drawn = dyn_cast<pc::DrawnOpInterface>(op);
      return drawn && drawn.getDropAttr();
    });
    if (std::string error = runPhase(pc::Phase::Step, triple.options); !error.empty())
      return error;
    if (triple.cse && failed(runPass(*module, "cse")))
      return "cse fails";
    step = textOf(*module);
    if (failed(proof.begin(*module)))
      return "the proof cannot read the step program";
    for (pc::Phase phase : {pc::Phase::Placed, pc::Phase::Local, pc::Phase::Scheduled, pc::Phase::Planned})
      if (std::string error = runPhase(phase, triple.options); !error.empty())
        return error;
    return "";
  }

  int passes = 0;
  double worst = 0;

private:
  LogicalResult runPass(ModuleOp target, StringRef pass) {
    PassManager manager(&context);
    return success(succeeded(parsePassPipeline(pass, manager)) && succeeded(manager.run(target)));
  }

  /// Calls back after every pass, or for the pass that fails.
  struct Observer : PassInstrumentation {
    explicit Observer(std::function<void(StringRef pass, bool good)> told) : told(std::move(told)) {}
    void runAfterPass(Pass *pass, Operation *) override { told(pass->getArgument(), true); }
    void runAfterPassFailed(Pass *pass, Operation *) override { told(pass->getArgument(), false); }
    std::function<void(StringRef, bool)> told;
  };

  std::string runPhase(pc::Phase phase, const pc::CompileOptions &options) {
    OwningOpRef<ModuleOp> before = module->clone();
    std::string error, refused = runPasses(phase, options, error);
    if (refused.empty())
      return error;
    module = std::move(before);
    return runPhase(phase, withoutWindow(options, refused));
  }

  /// Stores the first error in `error`, or the axis over which windows are legitimately refused.
  std::string runPasses(pc::Phase phase, const pc::CompileOptions &options, std::string &error) {
    PassManager manager = PassManager::on<ModuleOp>(&context);
    manager.enableVerifier(false); // see check()
    pc::PhaseFailures failures;
    error = pc::buildPhase(manager, phase, options, failures);
    manager.addInstrumentation(std::make_unique<Observer>([&](StringRef pass, bool good) {
      if (error.empty())
        error = good ? check(pass, phase) : pass.str() + " fails";
    }));
    std::string refused;
    {
      ScopedDiagnosticHandler listen(&context, [&](Diagnostic &diagnostic) {
        std::string message = diagnostic.str();
        StringRef axis = StringRef(message).split("nothing to do over axis '").second.split('\'').first;
        bool hasReason = phase == pc::Phase::Scheduled && mayBeRefused(options.plan) && !axis.empty();
        refused = hasReason ? axis.str() : refused;
        return success(hasReason);
      });
      if (error.empty() && failed(manager.run(*module)) && error.empty())
        error = "the phase " + pc::nameOf(phase).str() + " fails";
    }
    return error.empty() ? "" : refused;
  }

  /// Returns true if an axis of windows may be refused. The plan then goes on without it. It is refused if every
  /// product next to its moves is already split into steps over another axis, or reads a slice of a padded parameter.
  static bool mayBeRefused(const pc::Plan &plan) {
    auto windows = plan.find<pc::WindowMovesTactic>();
    return windows && (windows->axes().size() > 1 || plan.padding());
  }

  static pc::CompileOptions withoutWindow(pc::CompileOptions options, StringRef axis) {
    pc::Tactic windows = *options.plan.find<pc::WindowMovesTactic>();
    SmallVector<StringRef> axes = windows.list("axes");
    llvm::erase(axes, axis);
    llvm::erase(options.plan.tactics, windows);
    if (!axes.empty())
      options.plan.tactics.push_back(windows.with("axes", llvm::join(axes, ",")));
    return options;
  }

  std::string check(StringRef pass, pc::Phase phase) {
    ++passes;
    if (drops && !triple.options.train && pass == "pc-differentiate")
      last.clear(); // evaluation drops nothing
    if (failed(verify(*module)))
      return "after " + pass.str() + ": the program does not verify";
    std::string error = interpretNow(pass);
    if (error.empty() && phase != pc::Phase::Step && !proof.isProved(*module))
      error = "after " + pass.str() + ": the program is not proved";
    if (!error.empty() || phase != pc::Phase::Placed)
      return error;
    OwningOpRef<ModuleOp> erased = module->clone();
    if (failed(runPass(*erased, "pc-erase-placements")) || textOf(*erased) != step)
      return "after " + pass.str() + ": the erased program is not the step program";
    return "";
  }

  /// Interprets the program and compares every result that it had before.
  std::string interpretNow(StringRef pass) {
    pc::RunOptions options;
    options.tolerance = tolerance;
    options.exact = true; // bf16 rounds differently in every order of operations
    auto results = pc::interpret(*module, options);
    if (failed(results))
      return "after " + pass.str() + ": the interpreter fails";
    for (const pc::NamedTensor &before : last) {
      pc::Tensor *after = pc::find(*results, before.name);
      if (!after)
        return "after " + pass.str() + ": " + before.name + " is lost";
      double difference = pc::largestDifference(before.value, *after);
      worst = std::max(worst, difference);
      if (difference > tolerance)
        return "after " + pass.str() + ": " + before.name + " differs by " + std::to_string(difference);
    }
    last = std::move(*results);
    return "";
  }

  static std::string textOf(ModuleOp target) {
    std::string text;
    llvm::raw_string_ostream(text) << target;
    return text;
  }

  MLIRContext &context;
  const Triple &triple;
  OwningOpRef<ModuleOp> module;
  std::string step; ///< the text of the step program
  pc::Proof proof;
  bool drops = false; ///< the model has dropout
  pc::Results last;
};

} // namespace

/// The loop of --programs.
static int checkPrograms(MLIRContext &context) {
  int64_t wrong = 0, refused = 0;
  for (uint64_t s = seed; s < seed + count; ++s) {
    RandomProgram program(s);
    if (print) {
      llvm::outs() << "// seed " << s << ": " << program.flags << "\n" << program.text << "\n";
      continue;
    }
    PlanResult result = checkPlan(&context, program, tolerance);
    wrong += !result.wrong.empty();
    refused += !result.refused.empty();
    llvm::outs() << "seed " << s << ": ";
    if (!result.wrong.empty())
      llvm::outs() << "FAILED " << result.wrong << "\n  " << program.flags << "\n";
    else if (!result.refused.empty())
      llvm::outs() << "refused, " << result.refused << "\n";
    else
      llvm::outs() << "equal, largest difference " << llvm::format("%.1e", result.difference) << "\n";
    llvm::outs().flush(); // in case the next one crashes
  }
  if (!print)
    llvm::outs() << count - wrong << " of " << count << " programs are right: " << count - wrong - refused << " equal, "
                 << refused << " refused\n";
  return wrong ? PCRT_VERIFICATION : PCRT_OK;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-random");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-random: random models and plans through every pass, checked by the interpreter\n\n"
          "Exit code 5 where a pass changes what a program computes; the seed is printed.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context, pc::errs());
  if (programs)
    return checkPrograms(context);
  int64_t failures = 0;
  for (uint64_t s = seed; s < seed + count; ++s) {
    Triple triple(s);
    if (!golden.empty()) {
      if (failed(writeGolden(&context, triple, golden)))
        return PCRT_RESOURCE;
      const pc::Plan &plan = triple.options.plan;
      llvm::outs() << triple.batch << " " << triple.sequence << " " << triple.optimizer() << " "
                   << (plan.find<pc::MixedPrecisionTactic>() ? "bf16" : "f32") << " " << plan.meshText() << "\n";
      return PCRT_OK;
    }
    if (print) {
      llvm::outs() << "// seed " << s << ": " << triple.text() << "\n";
      if (auto module = triple.model(&context))
        llvm::outs() << *module << "\n";
      continue;
    }
    Check check(context, triple);
    std::string error = check.run();
    if (error.empty()) {
      llvm::outs() << "seed " << s << ": ok, " << check.passes << " passes, largest difference "
                   << llvm::format("%.1e", check.worst) << "\n";
      llvm::outs().flush(); // in case the next one crashes
      continue;
    }
    ++failures;
    llvm::outs() << "seed " << s << ": FAILED " << error << "\n  " << triple.text() << "\n";
    llvm::outs().flush();
  }
  if (!print)
    llvm::outs() << count - failures << " of " << count << " triples passed\n";
  return failures ? PCRT_VERIFICATION : PCRT_OK;
}
