//===- pc-equal.cpp - Do two programs compute the same? ---------------------------------===//
// Interprets two programs of any phase on the same feeds and compares their outputs and updates by name.
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Source.h"
#include "pc/IR/ToolMain.h"
#include "pc/Reference/Interpreter.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("pc-equal options");
static cl::list<std::string> inputs(cl::Positional, cl::desc("<a.mlir> <b.mlir>"), cl::cat(category));
static cl::opt<uint64_t> seed("seed", cl::desc("Of parameters, states and tokens"), cl::init(1), cl::cat(category));
static cl::opt<double>
    toleranceFlag("tolerance",
                  cl::desc("Largest relative difference (default: 1e-9; 0.1 where values of type bf16 "
                           "are rounded)"),
                  cl::init(-1), cl::cat(category));
static cl::opt<bool> exact("exact", cl::desc("Do not round values of type bf16"), cl::cat(category));
static cl::opt<bool> common("common", cl::desc("Ignore results that only one program has"), cl::cat(category));

/// Interprets one file; null with the exit status in `status` after an error. Sets `rounded` where values are.
static std::optional<pc::Results> run(mlir::MLIRContext &context, llvm::StringRef path, pcrt_status &status,
                                      bool &rounded) {
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context, pc::errs());
  mlir::OwningOpRef<mlir::ModuleOp> module = pc::parseProgram(path, sources, &context);
  status = PCRT_BAD_INPUT;
  if (!module)
    return std::nullopt;
  pc::RunOptions options;
  options.seed = seed;
  options.exact = exact;
  rounded |= !exact && pc::hasBf16(*module);
  if (toleranceFlag >= 0)
    options.tolerance = toleranceFlag;
  auto results = pc::interpret(*module, options);
  status = PCRT_VERIFICATION;
  if (failed(results))
    return std::nullopt;
  return std::move(*results);
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-equal");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-equal: do two programs compute the same?\n\n"
          "Programs of any phase, each on as many simulated ranks as its mesh has, in double precision, on\n"
          "the same parameters and tokens; values of type bf16 are rounded. Exit code 0: equal; 5: they differ or one "
          "contradicts itself.\n",
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
  pcrt_status status = PCRT_OK;
  bool rounded = false;
  std::optional<pc::Results> a = run(context, inputs[0], status, rounded);
  if (!a)
    return status;
  std::optional<pc::Results> b = run(context, inputs[1], status, rounded);
  if (!b)
    return status;

  double tolerance = toleranceFlag >= 0 ? double(toleranceFlag) : rounded ? 0.1 : 1e-9;

  // Largest difference per class of names: the first word, so "gradient", "update", "logits", ...
  std::vector<std::pair<std::string, double>> classes;
  bool equal = true;
  int64_t compared = 0;
  // A gradient may be zero but for rounding (a bias of keys); in bf16 that noise is that of the other gradients.
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
