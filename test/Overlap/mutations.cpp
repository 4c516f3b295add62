//===- mutations.cpp - Breaks a schedule in every small way ---------------===//
// usage: pc-schedule-mutations planned.mlir step.mlir
// Each mutant lacks one wait or one bucket of carries, has one start or wait moved by up to three ops, or has two
// starts exchanged. Carries also bring another value, have the memory of another carry, or are lost on their way out. A
// verifier or the proof must refuse the mutant, or it must compute the same bits.
//===----------------------------------------------------------------------===//
#include "pc/IR/LeavesByName.h"
#include "pc/Memory/Passes.h"
#include "pc/Overlap/Passes.h"
#include "pc/Proof/Proof.h"
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
  /// `proof` has begun with the step program.
  Mutator(ModuleOp original, const Proof &proof) : original(original), proof(proof) {}

  int run() {
    Results wanted = *interpret(original, {});
    expected = &wanted;
    int starts = 0;
    original.walk([&](StartOp) { ++starts; });
    for (int i = 0; i < starts; ++i) {
      mutate("drop carries", [&](ArrayRef<StartOp> all) { return dropCarries(all[i]); });
      mutate("lose an update", [&](ArrayRef<StartOp> all) { return loseUpdate(all[i]); });
      mutate("delete a wait", [&](ArrayRef<StartOp> all) { return deleteWait(all[i]); });
      for (int by : {-3, -2, -1, 1, 2, 3}) {
        mutate("move a start", [&](ArrayRef<StartOp> all) { return shift(all[i], by); });
        mutate("move a wait", [&](ArrayRef<StartOp> all) { return shift(StartOp(all[i]).getWait(), by); });
      }
      for (int j = i + 1; j < starts; ++j) {
        mutate("swap two starts", [&](ArrayRef<StartOp> all) { return swap(all[i], all[j]); });
        mutate("carry another value", [&](ArrayRef<StartOp> all) { return carryAnother(all[i], all[j]); });
        mutate("share memory", [&](ArrayRef<StartOp> all) { return shareMemory(all[i], all[j]); });
      }
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

  static CarryOp carryOf(StartOp start) { return dyn_cast<CarryOp>(*start.getMoves()[0]); }

  /// Readers get the values in the space that they have. Returns false if the moves are no carries.
  static bool dropCarries(StartOp start) {
    if (!carryOf(start))
      return false;
    deleteWait(start);
    start.erase();
    return true;
  }

  /// Leaves keep their old values instead of those that are carried out. Returns false if no carry is of a leaf.
  static bool loseUpdate(StartOp start) {
    LeavesByName leaves(*start->getBlock());
    bool isLost = false;
    for (Operation *user : llvm::to_vector(start.getWait()->getUsers()))
      if (auto update = dyn_cast<UpdateOp>(user); update && carryOf(start) && carryOf(start).isOut())
        update.getValueMutable().set(leaves.of(update)), isLost = true;
    return isLost;
  }

  /// Two carries to the device exchange their operands. Returns false if they are of other types.
  static bool carryAnother(StartOp a, StartOp b) {
    if (!carryOf(a) || !carryOf(b) || carryOf(a).isOut() || carryOf(b).isOut() ||
        withoutHome(a.getInputs()[0].getType()) != withoutHome(b.getInputs()[0].getType()) ||
        a.getInputs()[0] == b.getInputs()[0])
      return false;
    Value other = b->getOperand(0);
    b->setOperand(0, a->getOperand(0));
    a->setOperand(0, other);
    return true;
  }

  /// The result of a carry gets the memory of the other's. Returns false if these are in different spaces.
  static bool shareMemory(StartOp a, StartOp b) {
    if (!carryOf(a) || !carryOf(b) || carryOf(a).getLink() != carryOf(b).getLink())
      return false;
    b.getWait().getResult(0).setType(withEncoding(
        b.getWait().getResult(0).getType(), cast<RankedTensorType>(a.getWait().getResult(0).getType()).getEncoding()));
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
    if (!same && !proof.isProved(*mutant)) {
      ++count.refused;
      ++count.reasons["the proof"];
      return;
    }
    ++(same ? count.harmless : count.wrong);
    if (same)
      return;
    failed = 1;
    llvm::errs() << name << ": not refused, but wrong: " << reason << "\n";
  }

  ModuleOp original;
  const Proof &proof;
  Results *expected = nullptr;
  std::map<std::string, Count> counts;
  int failed = 0;
};

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<PCDialect, func::FuncDialect>();
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module, step;
  if (argc == 3)
    module = parseSourceFile<ModuleOp>(argv[1], &context), step = parseSourceFile<ModuleOp>(argv[2], &context);
  Proof proof;
  return module && step && succeeded(proof.begin(*step)) ? Mutator(*module, proof).run() : 2;
}
