//===- VerifyStep.cpp - Constraints of the step phase beyond single ops -----------------===//
// The constraints (T1) to (T8) are listed in Passes.td.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYSTEP
#include "pc/Autodiff/Passes.h"

#include "Gradients.h"
#include "pc/IR/Boxes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Parts.h"
#include "pcrt/description.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-verify-step. It checks functions first, then each op, and finally what only the whole program shows.
struct VerifyStep : pc::impl::VerifyStepBase<VerifyStep> {
  void runOnOperation() override {
    leaves.clear(); // the pass may run on several modules
    accumulate = nullptr;
    seed = nullptr;
    losses = 0;
    generates = false;
    if (failed(verifyFunctions()))
      return signalPassFailure();
    WalkResult walked = getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      return WalkResult(failed(verifyTypes(op)) || failed(verifyOp(op)) ? failure() : success());
    });
    if (walked.wasInterrupted() || failed(verifyWhole()))
      signalPassFailure();
  }

private:
  /// Checks (T1): the program has one function, without arguments and results.
  LogicalResult verifyFunctions() {
    auto functions = llvm::to_vector(getOperation().getOps<func::FuncOp>());
    if (functions.size() != 1 || functions[0].getSymName() != "step" || functions[0].isExternal())
      return getOperation().emitError() << "a step program must have exactly one function, @step (T1)";
    if (functions[0].getNumArguments() || functions[0].getNumResults())
      return functions[0].emitOpError()
             << "must have no arguments or results; inputs, parameters and updates are ops (T1)";
    return success();
  }

  /// Checks (T2): the program is for one device, so no type has an encoding, and there are no moves.
  LogicalResult verifyTypes(Operation *op) {
    auto isBare = [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return !tensor || !tensor.getEncoding();
    };
    bool isOneDevice = !isa<MeshOp, MoveOpInterface>(op) && llvm::all_of(op->getResultTypes(), isBare);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        isOneDevice &= llvm::all_of(block.getArgumentTypes(), isBare);
    if (!isOneDevice)
      return op->emitOpError()
             << "must not be in a step program: it is for several devices, or belongs to a later phase (T2)";
    return success();
  }

  /// Checks the kinds of ops that a step has once, and leaves and updates.
  LogicalResult verifyOp(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](AccumulateOp one) -> LogicalResult {
          if (accumulate)
            return one.emitOpError() << "is the second one; a step program has only one (T3)";
          accumulate = one;
          return success();
        })
        .Case([&](SeedOp one) -> LogicalResult {
          if (seed || one->getParentOp() != accumulate)
            return one.emitOpError() << "must be the only op of its kind, directly inside pc.accumulate (T3)";
          seed = one;
          return success();
        })
        .Case([&](CacheWriteOp) {
          generates = true;
          return success();
        })
        .Case<CrossEntropyOp, LogSumExpOp>([&](auto loss) -> LogicalResult {
          return loss.emitOpError() << "belongs in model programs only; pc-differentiate expands it (T4)";
        })
        .Case([&](OutputOp output) {
          losses += output.getKind() == OutputKind::Loss;
          return success();
        })
        .Case([&](ParameterOp leaf) { return addLeaf(leaf.getNameAttr(), {}, leaf.getValue()); })
        .Case([&](StateOp leaf) { return addLeaf(leaf.getParameterAttr(), leaf.getNameAttr(), leaf.getValue()); })
        .Case([&](UpdateOp update) { return verifyUpdate(update); })
        .Default(success());
  }

  LogicalResult addLeaf(StringAttr parameter, StringAttr state, Value value) {
    if (!leaves.try_emplace({parameter, state}, Leaf{value, 0}).second)
      return value.getDefiningOp()->emitOpError() << "is defined twice (T5)";
    return success();
  }

  /// Checks (T5): an update sets a leaf of this program, once, to a value of its type.
  LogicalResult verifyUpdate(UpdateOp update) {
    std::pair<StringAttr, StringAttr> key = {update.getNameAttr(), StringAttr()};
    if (update.getParameter())
      key = {update.getParameterAttr(), update.getNameAttr()};
    auto *leaf = leaves.find(key);
    if (leaf == leaves.end())
      return update.emitOpError() << "sets '" << update.getName()
                                  << "', which is not a parameter or state of this program (T5)";
    if (leaf->second.value.getType() != update.getValue().getType())
      return update.emitOpError() << "sets " << leaf->second.value.getType() << " to a value of type "
                                  << update.getValue().getType() << " (T5)";
    if (leaf->second.updates++)
      return update.emitOpError() << "sets '" << update.getName() << "' a second time (T5)";
    return success();
  }

  /// Checks that nothing is missing in the whole program.
  LogicalResult verifyWhole() {
    if (failed(verifyCodes()))
      return failure();
    if (generates)
      return verifyCaches();
    if (!accumulate)
      return getOperation().emitError() << "a step program needs a pc.accumulate over its microbatches (T3)";
    if (losses != 1)
      return getOperation().emitError() << "a step program must have exactly one output of kind loss, got " << losses
                                        << " (T4)";
    if (seed && failed(checkBoxes(getOperation()))) // (T6)
      return failure();
    for (auto &[key, leaf] : leaves)
      if (auto parameter = leaf.value.getDefiningOp<ParameterOp>(); parameter && parameter.getFrozen()) {
        if (leaf.updates)
          return parameter.emitOpError() << "'" << parameter.getName() << "' is frozen and is updated (T5)";
      } else if (seed && !leaf.updates && !isOfChoices(leaf.value)) {
        return leaf.value.getDefiningOp()->emitOpError() << "'" << key.first.getValue() << "' is never updated (T5)";
      } else if (auto state = leaf.value.getDefiningOp<StateOp>()) {
        auto *of = leaves.find({key.first, StringAttr()});
        auto parameter = of == leaves.end() ? ParameterOp() : of->second.value.getDefiningOp<ParameterOp>();
        if (parameter && !partsOfState(state, parameter))
          return state.emitOpError() << "'" << state.getName() << "' must have the shape of '" << parameter.getName()
                                     << "', or some of its dims with their names and sizes, whole in the checkpoint; "
                                        "its type is "
                                     << state.getValue().getType() << " (T5)";
      }
    return success();
  }

  /// Checks (T8): codes have scales.
  LogicalResult verifyCodes() {
    for (auto &[key, leaf] : leaves) {
      auto parameter = leaf.value.getDefiningOp<ParameterOp>();
      if (!parameter || !isCode(getElementTypeOrSelf(leaf.value.getType())))
        continue;
      StateOp scales = scalesOf(parameter);
      if (!generates || !scales || !dimsOfState(scales, parameter))
        return parameter.emitOpError() << "'" << parameter.getName() << "' has codes and needs "
                                       << (generates ? "a state \"" PCRT_SCALE "\" with some of its dims (T8)"
                                                     : "a step that generates text (T8)");
    }
    return success();
  }

  /// Checks (T7): a program that generates updates only its caches, each with the result of writing into it.
  LogicalResult verifyCaches() {
    if (accumulate || seed)
      return getOperation().emitError() << "a program with caches does not train (T7)";
    WalkResult walked = getOperation().walk([&](UpdateOp update) -> WalkResult {
      Value written = update.getValue();
      bool isWritten = false;
      while (auto write = written.getDefiningOp<CacheWriteOp>())
        written = write.getCache(), isWritten = true;
      auto cache = isWritten ? written.getDefiningOp<StateOp>() : StateOp();
      if (cache && cache.getCache() && cache.getNameAttr() == update.getNameAttr() &&
          cache.getParameterAttr() == update.getParameterAttr())
        return WalkResult::advance();
      return update.emitOpError() << "must update a cache with the result of pc.cache_write to it (T7)";
    });
    return failure(walked.wasInterrupted());
  }

  /// A leaf, and how many updates it has.
  struct Leaf {
    Value value;
    int updates;
  };
  llvm::MapVector<std::pair<StringAttr, StringAttr>, Leaf> leaves; ///< by parameter and state, which may be null
  Operation *accumulate = nullptr, *seed = nullptr;
  int losses = 0;
  bool generates = false; ///< it has caches
};
} // namespace
