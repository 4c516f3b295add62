//===- pc-equal.cpp - Compares what two programs compute ------------------===//
// Interprets two programs of any phase with the same inputs and compares their outputs and updates by name.
//===----------------------------------------------------------------------===//
#include "pc/IR/Stages.h"
#include "pc/Proof/Proof.h"
#include "pc/Reference/Interpreter.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("pc-equal options");
static cl::list<std::string> inputs(cl::Positional, cl::desc("<a.mlir> <b.mlir>"), cl::cat(category));
static cl::opt<uint64_t> seed("seed", cl::desc("Seed of the random parameters, states and tokens"), cl::init(1),
                              cl::cat(category));
static cl::opt<double>
    toleranceFlag("tolerance",
                  cl::desc("Largest relative difference that counts as equal (default 1e-9; with --rounded 0.1)"),
                  cl::init(-1), cl::cat(category));
static cl::opt<bool> rounded("rounded", cl::desc("Round bf16 values as the ranks of an executable do"),
                             cl::cat(category));
static cl::opt<int64_t> stepsFlag("steps",
                                  cl::desc("Number of steps to run (default 2 if parameters are updated, else 1)"),
                                  cl::init(0), cl::cat(category));
static cl::opt<bool> common("common", cl::desc("Ignore results that only one program has"), cl::cat(category));

/// Proves that two programs are equal, for programs that are too large to be interpreted.
static pcrt_status proved(mlir::ModuleOp a, mlir::ModuleOp b) {
  bool swap = !pc::meshOf(pc::programsOf(b).front()); // the step program comes first
  pc::Proof proof;
  mlir::ModuleOp first = swap ? b : a, second = swap ? a : b;
  bool isStep = !pc::meshOf(pc::programsOf(first).front());
  if (succeeded(isStep ? proof.begin(first) : proof.beginAt(first, "given", "")) &&
      succeeded(proof.prove(second, "given"))) {
    llvm::outs() << "proved at full size without running them\nequal\n";
    return PCRT_OK;
  }
  llvm::outs() << "cannot say\n";
  return PCRT_UNDECIDED;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-equal");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-equal: checks whether two programs compute the same\n\nRuns programs of any phase in double precision on "
          "the simulated ranks of their meshes, with\nthe same parameters and tokens. Programs too large to run are "
          "proved. Exit code 0: equal; 5: they differ, or\none contradicts itself; 11: cannot say.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (inputs.size() != 2) {
    pc::errs() << "pc-equal: error: expected two programs, got " << inputs.size() << "\n";
    return PCRT_USAGE;
  }
  mlir::DialectRegistry registry;
  registry.insert<pc::PCDialect, mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources[2];
  mlir::OwningOpRef<mlir::ModuleOp> modules[2];
  for (int i : {0, 1}) {
    mlir::SourceMgrDiagnosticHandler handler(sources[i], &context, pc::errs());
    modules[i] = pc::parseProgram(inputs[i], sources[i], &context);
    if (!modules[i])
      return PCRT_BAD_INPUT;
  }
  double tolerance = toleranceFlag >= 0 ? double(toleranceFlag) : rounded ? 0.1 : 1e-9;
  bool isTraining = pc::hasUpdates(*modules[0]) && pc::hasUpdates(*modules[1]);
  int64_t steps = stepsFlag > 0 ? int64_t(stepsFlag) : isTraining ? 2 : 1;
  pc::RunOptions options;
  options.seed = seed;
  options.exact = !rounded;
  if (toleranceFlag >= 0)
    options.tolerance = tolerance;
  std::optional<pc::Results> results[2];
  for (int i : {0, 1}) {
    std::string why;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
      why = diagnostic.str();
      return mlir::success();
    });
    if (succeeded(pc::canInterpret(*modules[i])))
      continue;
    llvm::outs() << inputs[i] << ": " << why << "\n";
    mlir::SourceMgrDiagnosticHandler errors(sources[i], &context, pc::errs());
    return proved(*modules[0], *modules[1]);
  }
  for (int i : {0, 1}) {
    mlir::SourceMgrDiagnosticHandler handler(sources[i], &context, pc::errs());
    auto found = pc::interpretSteps(*modules[i], options, steps);
    if (failed(found))
      return PCRT_VERIFICATION;
    results[i] = std::move(*found);
  }
  auto &[a, b] = results;
  if (!rounded && (pc::hasBf16(*modules[0]) || pc::hasBf16(*modules[1])))
    llvm::outs() << "values of type bf16 are not rounded (--rounded)\n";

  // Largest difference per class of names: the first word, so "gradient", "update", "logits", ...
  std::vector<std::pair<std::string, double>> classes;
  bool equal = true;
  int64_t compared = 0;
  // A gradient may be zero except for rounding (a bias of keys); in bf16 that noise has the size of other gradients'
  // noise.
  double gradients = 0;
  for (auto &[name, value] : *a)
    if (rounded && llvm::StringRef(name).starts_with("gradient "))
      gradients = std::max(gradients, pc::largestElement(value));
  auto leastScale = [&](llvm::StringRef name) {
    return name.starts_with("gradient ") ? std::max(1e-6, gradients / 8) : 1e-6;
  };
  auto lacks = [&](llvm::StringRef file, llvm::StringRef name) {
    if (common)
      return;
    equal = false;
    pc::errs() << "pc-equal: " << file << " has no " << name << "\n";
  };
  for (auto &[name, value] : *a) {
    pc::Tensor *other = pc::find(*b, name);
    if (!other) {
      lacks(inputs[1], name);
      continue;
    }
    ++compared;
    double difference = pc::largestDifference(value, *other, leastScale(name));
    if (difference > tolerance) {
      equal = false;
      pc::errs() << "pc-equal: " << name << " differs: relative difference " << llvm::format("%.1e", difference)
                 << "\n";
    }
    std::string kind = llvm::StringRef(name).split(' ').first.str();
    auto it = llvm::find_if(classes, [&](const auto &c) { return c.first == kind; });
    if (it == classes.end())
      it = classes.insert(it, {kind, 0});
    it->second = std::max(it->second, difference);
  }
  for (auto &[name, value] : *b)
    if (!pc::find(*a, name))
      lacks(inputs[0], name);
  for (const auto &[kind, difference] : classes)
    llvm::outs() << kind << ": largest relative difference " << llvm::format("%.1e", difference) << "\n";
  if (!compared) {
    pc::errs() << "pc-equal: the programs have no result in common\n";
    equal = false;
  }
  llvm::outs() << (equal ? "equal" : "different") << "\n";
  return equal ? PCRT_OK : PCRT_VERIFICATION;
}
