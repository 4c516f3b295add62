//===- Steps.cpp - Several training steps -----------------------------------------------------===//
// Runs a step several times. Updated parameters and states of one step are the leaves of the next; tokens differ by
// step. Results of later steps are named "... in step N".
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Parts.h"
#include "pc/IR/Stages.h"
#include "pc/Reference/Interpreter.h"

#include "pcrt/description.h"
#include <cmath>
#include <map>

using namespace mlir;
using namespace pc;

namespace {
/// The values at the start of a step: values that the step before has written, and drawn values for all other leaves.
class Training {
public:
  explicit Training(ModuleOp module) {
    llvm::StringMap<ParameterOp> parameters;
    module.walk([&](ParameterOp op) {
      parameters[op.getName()] = op;
      parts[op.getName().str()] = partsOf(op);
    });
    module.walk([&](StateOp state) {
      ParameterOp of = parameters.lookup(state.getParameter());
      if (of && dimsOfState(state, of))
        parts[prefixOf(state) + of.getName().str()] = partsOfState(state, of).value_or(SmallVector<ParameterPart>());
    });
  }

  /// Later steps begin with the parameters and states that the step before has written.
  void feed(int64_t step, Operation *leaf, Tensor &tensor) const {
    if (auto parameter = dyn_cast<ParameterOp>(leaf))
      put(parameter.getName(), "", tensor);
    else if (auto state = dyn_cast<StateOp>(leaf))
      put(state.getParameter(), prefixOf(state), tensor);
    else if (auto input = dyn_cast<InputOp>(leaf);
             input && input.getKind() == InputKind::Hyper && tensor.size() == PCRT_HYPER_COUNT) {
      // The bias corrections of Adam depend on the number of steps so far.
      double count = static_cast<double>(step + 1);
      tensor[PCRT_HYPER_CORRECTION1] = 1 - std::pow(tensor[PCRT_HYPER_BETA1], count);
      tensor[PCRT_HYPER_CORRECTION2] = 1 - std::pow(tensor[PCRT_HYPER_BETA2], count);
    }
  }

  void take(const Results &results) {
    for (const NamedTensor &result : results)
      if (StringRef name = result.name; name.consume_front("update "))
        updated[name.str()] = result.value;
  }

private:
  static std::string prefixOf(StateOp state) { return state.getName().str() + " of "; }

  /// Writes the updated values into the boxes of a parameter's parts; padding stays as it is.
  void put(StringRef parameter, const std::string &prefix, Tensor &tensor) const {
    auto known = parts.find(prefix + parameter.str());
    if (known == parts.end())
      return;
    for (const ParameterPart &part : known->second)
      if (auto it = updated.find(prefix + part.name.str()); it != updated.end())
        tensor.merge(part.start, it->second, [](double &to, double x) { to = x; });
  }

  std::map<std::string, SmallVector<ParameterPart>> parts;
  std::map<std::string, Tensor> updated;
};
} // namespace

bool pc::hasUpdates(ModuleOp module) {
  return module.walk([](UpdateOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Each step is a run with its own seed, which changes only the tokens.
FailureOr<Results> pc::interpretSteps(ModuleOp module, const RunOptions &options, int64_t steps) {
  Training training(module);
  Results all;
  for (int64_t step = 0; step < steps; ++step) {
    RunOptions now = options;
    now.seed = options.seed + step; // other tokens
    now.feed = [&](Operation *leaf, Tensor &tensor) { training.feed(step, leaf, tensor); };
    FailureOr<Results> results = interpret(module, now);
    if (failed(results))
      return failure();
    training.take(*results);
    for (NamedTensor &result : *results)
      all.push_back({result.name + (step ? " in step " + std::to_string(step + 1) : ""), std::move(result.value)});
  }
  return all;
}
