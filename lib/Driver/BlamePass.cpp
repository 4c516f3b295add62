//===- BlamePass.cpp - Finds the pass that broke a program -----------------------------------===//
// Compiles the program again, and proves it after every pass, instead of once per phase. The first pass after which the
// proof fails is the one to report.
//===-----------------------------------------------------------------------------------------===//
#include "BlamePass.h"
#include "pc/Driver/Origin.h"
#include "pc/Proof/Proof.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace pc;

namespace {
/// Proves the whole program after every pass, including passes on one stage's program, until a proof fails.
struct ProveEach : PassInstrumentation {
  ProveEach(ModuleOp program, const Proof &proof, std::string &broken)
      : program(program), proof(proof), broken(broken) {}

  void runAfterPass(Pass *pass, Operation *) override {
    if (!pass->getArgument().empty() && broken.empty() && !(succeeded(verify(program)) && proof.isProved(program)))
      broken = pass->getArgument();
  }

  ModuleOp program;
  const Proof &proof;
  std::string &broken;
};
} // namespace

/// The passes before `phase` run without proofs.
std::string pc::passThatBroke(const Proof &proof, Phase phase, CompileOptions options) {
  OwningOpRef<ModuleOp> program = proof.firstProgram().clone();
  MLIRContext *context = program->getContext();
  options.timing = nullptr;
  ScopedDiagnosticHandler silence(context, [](Diagnostic &) { return success(); });
  bool inThreads = context->isMultithreadingEnabled();
  context->disableMultithreading(); // so that no pass changes a program while it is being proved
  llvm::scope_exit restore([&] { context->enableMultithreading(inThreads); });

  std::optional<Phase> from = phaseOf(*program);
  for (const PhaseInfo &info : phases())
    if (!from || (info.phase > *from && info.phase < phase && runPhase(*program, info.phase, options)))
      return "";
  PassManager manager = PassManager::on<ModuleOp>(context);
  manager.enableVerifier(false);
  PhaseFailures failures;
  std::string broken;
  manager.addInstrumentation(std::make_unique<ProveEach>(*program, proof, broken));
  if (buildPhase(manager, phase, options, failures).empty())
    std::ignore = manager.run(*program);
  return broken;
}
