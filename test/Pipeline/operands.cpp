//===- operands.cpp - Placed programs that read the wrong values ----------===//
// usage: pc-operand-mutants placed.mlir plan FIRST COUNT [same]
// Makes mutants FIRST to FIRST + COUNT - 1, each with one to three defects: an operand, or all uses of a value,
// replaced by another value of its type. Every mutant goes through the phases after `placed` in a process of its own.
// It must be compiled, or refused with an error that says where; with `same`, the planned program must also compute
// what the mutant computes.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Compile.h"
#include "pc/Driver/Registration.h"
#include "pc/Reference/Interpreter.h"

#include "mlir/IR/Dominance.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <map>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace pc;

namespace {

/// The outcome of a mutant, which its process returns.
enum Outcome : int { Compiled, Refused, Illegal, Silent, Internal, Wrong };

/// Makes mutants of a placed program, compiles each in a child process, and counts the outcomes.
class Mutants {
public:
  Mutants(ModuleOp original, const CompileOptions &options, bool same)
      : original(original), options(options), same(same) {}

  int run(uint64_t first, uint64_t count) {
    for (uint64_t seed = first; seed < first + count; ++seed) {
      pid_t child = fork();
      if (child == 0) {
        alarm(60);
        _exit(compileMutant(seed));
      }
      int status = 0;
      waitpid(child, &status, 0);
      const char *outcome = outcomeOf(status);
      ++counts[outcome];
      if (WIFSIGNALED(status) || WEXITSTATUS(status) >= Silent) {
        bad = 1;
        llvm::outs() << "mutant " << seed << ": " << outcome << "\n";
      }
    }
    for (auto &[outcome, n] : counts)
      llvm::outs() << outcome << ": " << n << "\n";
    return bad;
  }

private:
  static const char *outcomeOf(int status) {
    static const char *const names[] = {
        "compiled", "refused", "no program", "refused without an error", "internal", "computes something else"};
    if (WIFSIGNALED(status))
      return WTERMSIG(status) == SIGALRM ? "hangs" : "crashes";
    return WEXITSTATUS(status) <= Wrong ? names[WEXITSTATUS(status)] : "ends by itself";
  }

  Outcome compileMutant(uint64_t seed) {
    std::mt19937_64 random(seed);
    OwningOpRef<ModuleOp> mutant = original.clone();
    for (int defects = 1 + static_cast<int>(random() % 3); defects > 0; --defects)
      mutate(*mutant, random);
    bool said = false;
    ScopedDiagnosticHandler handler(original.getContext(), [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error) {
        said = true;
        llvm::outs() << "  " << seed << ": " << diagnostic.getLocation() << ": " << diagnostic.str() << "\n";
      }
      return success();
    });
    PassManager placed(original.getContext());
    if (failed(verify(*mutant)) || failed(parsePassPipeline("pc-verify-placed", placed)) || failed(placed.run(*mutant)))
      return Illegal;
    RunOptions loose;
    loose.tolerance = 1e-5; // sums of large values that cancel
    std::optional<Results> wanted;
    if (same) {
      FailureOr<Results> results = interpret(*mutant, loose);
      if (failed(results))
        return Illegal; // contradicts itself
      wanted = std::move(*results);
    }
    for (const PhaseInfo &info : phases()) {
      if (info.phase <= Phase::Placed || info.phase == Phase::Exe || (same && info.phase == Phase::Kernels))
        continue;
      if (pcrt_status status = runPhase(*mutant, info.phase, options))
        return !said ? Silent : status == PCRT_INTERNAL ? Internal : Refused;
    }
    if (!wanted)
      return Compiled;
    FailureOr<Results> results = interpret(*mutant, loose);
    if (failed(results))
      return Wrong;
    for (const NamedTensor &value : *wanted) {
      Tensor *other = find(*results, value.name);
      if (!other || largestDifference(value.value, *other) > 1e-6) {
        llvm::outs() << "  " << seed << ": " << value.name << (other ? " differs\n" : " is lost\n");
        return Wrong;
      }
    }
    return Compiled;
  }

  /// Replaces one operand of one op of @step, or all uses of its value, by another value that is known there.
  void mutate(ModuleOp mutant, std::mt19937_64 &random) {
    SmallVector<OpOperand *> operands;
    SmallVector<Value> values;
    mutant.walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (OpOperand &operand : op->getOpOperands())
        operands.push_back(&operand);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::append_range(values, block.getArguments());
      llvm::append_range(values, op->getResults());
    });
    DominanceInfo dominance(mutant);
    for (int tries = 0; tries < 100; ++tries) {
      OpOperand *operand = operands[random() % operands.size()];
      SmallVector<Value> others;
      for (Value value : values)
        if (value != operand->get() && value.getType() == operand->get().getType() &&
            dominance.properlyDominates(value, operand->getOwner()))
          others.push_back(value);
      if (others.empty())
        continue;
      Value other = others[random() % others.size()];
      if (random() % 8)
        return operand->set(other);
      operand->get().replaceUsesWithIf(
          other, [&](OpOperand &use) { return dominance.properlyDominates(other, use.getOwner()); });
      return;
    }
  }

  ModuleOp original;
  const CompileOptions &options;
  const bool same;
  std::map<std::string, int> counts;
  int bad = 0;
};

} // namespace

int main(int argc, char **argv) {
  llvm::outs().SetUnbuffered(); // what a process said before it crashed
  if (argc < 5)
    return 2;
  DialectRegistry registry;
  registerDialects(registry);
  registerPasses();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  pcrt_status status = PCRT_OK;
  std::optional<Plan> plan = planFromFile(&context, argv[2], status);
  if (!module || !plan)
    return 2;
  CompileOptions options;
  options.plan = *plan;
  return Mutants(*module, options, argc > 5).run(strtoull(argv[3], nullptr, 10), strtoull(argv[4], nullptr, 10));
}
