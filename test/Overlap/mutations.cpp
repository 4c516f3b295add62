//===- mutations.cpp - Breaks a schedule in every small way ---------------===//
// usage: pc-schedule-mutations planned.mlir
// Each mutant lacks one wait or one bucket of carries, has one start or wait moved by up to three ops, or has two
// starts exchanged. A verifier must refuse the mutant, or it must compute the same bits.
//===----------------------------------------------------------------------===//
#include "pc/Memory/Passes.h"
#include "pc/Overlap/Passes.h"
#include "pc/Reference/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;
using namespace pc;

namespace {

/// Changes a planned program in every small way, and counts the mutants that a verifier refuses, and the wrong ones.
class Mutator {
public:
  explicit Mutator(ModuleOp original) : original(original) {}

  int run() {
    Results wanted = *interpret(original, {});
    expected = &wanted;
    int starts = 0;
    original.walk([&](StartOp) { ++starts; });
    for (int i = 0; i < starts; ++i) {
      mutate("drop carries", [&](ArrayRef<StartOp> all) { return dropCarries(all[i]); });
      mutate("delete a wait", [&](ArrayRef<StartOp> all) { return deleteWait(all[i]); });
      for (int by : {-3, -2, -1, 1, 2, 3}) {
        mutate("move a start", [&](ArrayRef<StartOp> all) { return shift(all[i], by); });
        mutate("move a wait", [&](ArrayRef<StartOp> all) { return shift(StartOp(all[i]).getWait(), by); });
      }
      for (int j = i + 1; j < starts; ++j)
        mutate("swap two starts", [&](ArrayRef<StartOp> all) { return swap(all[i], all[j]); });
    }
    for (auto &[name, count] : counts) {
      llvm::outs() << name << ": " << count.refused << " refused, " << count.harmless << " harmless, " << count.wrong
                   << " wrong\n";
      for (auto &[reason, n] : count.reasons)
        llvm::outs() << "  " << n << " " << reason << "\n";
    }
    return failed;
  }

private:
  struct Count {
    int refused = 0, harmless = 0, wrong = 0;
    std::map<std::string, int> reasons;
  };

  static bool deleteWait(StartOp start) {
    WaitOp wait = start.getWait();
    for (auto [input, result] : llvm::zip(start.getInputs(), wait.getResults()))
      result.replaceAllUsesWith(input);
    wait.erase();
    return true;
  }

  /// Readers get the values in the space that they have. Returns false if the moves are no carries.
  static bool dropCarries(StartOp start) {
    if (!isa<CarryOp>(*start.getMoves()[0]))
      return false;
    deleteWait(start);
    start.erase();
    return true;
  }

  /// Moves `op` over `by` other ops of its block. Returns false if there are fewer.
  static bool shift(Operation *op, int by) {
    for (; by > 0; --by) {
      if (!op->getNextNode() || op->getNextNode()->hasTrait<OpTrait::IsTerminator>())
        return false;
      op->moveAfter(op->getNextNode());
    }
    for (; by < 0; ++by) {
      if (!op->getPrevNode())
        return false;
      op->moveBefore(op->getPrevNode());
    }
    return true;
  }

  static bool swap(StartOp a, StartOp b) {
    if (a->getBlock() != b->getBlock())
      return false;
    Operation *behind = b->getNextNode();
    b->moveBefore(a);
    a->moveBefore(behind);
    return true;
  }

  /// Returns the constraint that a message cites, or the beginning of a message from MLIR.
  static std::string reasonOf(StringRef message) {
    size_t at = message.rfind('(');
    return message.ends_with(")") && at != StringRef::npos ? message.substr(at).str() : message.substr(0, 40).str();
  }

  void mutate(const std::string &name, llvm::function_ref<bool(ArrayRef<StartOp>)> change) {
    OwningOpRef<ModuleOp> mutant = original.clone();
    SmallVector<StartOp> starts;
    mutant->walk([&](StartOp start) { starts.push_back(start); });
    if (!change(starts))
      return;
    std::string reason;
    ScopedDiagnosticHandler handler(original.getContext(), [&](Diagnostic &diagnostic) {
      if (reason.empty())
        reason = reasonOf(diagnostic.str());
      return success();
    });
    PassManager manager(original.getContext());
    manager.addPass(createVerifyScheduled());
    manager.addPass(createVerifyMemory());
    Count &count = counts[name];
    if (mlir::failed(verify(*mutant)) || mlir::failed(manager.run(*mutant))) {
      ++count.refused;
      ++count.reasons[reason];
      return;
    }
    FailureOr<Results> results = interpret(*mutant, {});
    bool same = succeeded(results) && results->size() == expected->size();
    for (size_t i = 0; same && i < results->size(); ++i)
      same = (*results)[i].value.data == (*expected)[i].value.data;
    ++(same ? count.harmless : count.wrong);
    if (same)
      return;
    failed = 1;
    llvm::errs() << name << ": not refused, but wrong: " << reason << "\n";
  }

  ModuleOp original;
  Results *expected = nullptr;
  std::map<std::string, Count> counts;
  int failed = 0;
};

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<PCDialect, func::FuncDialect>();
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = argc == 2 ? parseSourceFile<ModuleOp>(argv[1], &context) : OwningOpRef<ModuleOp>();
  return module ? Mutator(*module).run() : 2;
}
