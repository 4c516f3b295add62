//===- OtherMachines.cpp - A plan on machines with one figure changed -----------------------===//
// The program of a plan is the same on all machines, so each is compiled once and simulated on every machine.
//===-----------------------------------------------------------------------------===//
#include "OtherMachines.h"
#include "../Price/ComposePlan.h"

using namespace mlir;
using namespace pc;

/// Figures of links matter only with several ranks, and figures of the network only with ranks on several nodes.
std::vector<OtherMachine> pc::otherMachines(const MachineModel &machine, int64_t ranks) {
  std::vector<OtherMachine> all;
  auto add = [&](StringRef figure, StringRef words, llvm::function_ref<void(MachineModel &, double)> change) {
    for (double times : {0.5, 2.0})
      change(all.emplace_back(OtherMachine{figure, words, times, machine}).machine, times);
  };
  add("products", "products", [](MachineModel &other, double times) {
    other.f32Flops *= times;
    other.bf16Flops *= times;
    other.fp8Flops *= times;
  });
  bool hasNodes = machine.nodeRanks > 0;
  if (ranks > 1)
    add("node", hasNodes ? "links within a node" : "links between ranks",
        [](MachineModel &other, double times) { other.node.bandwidth *= times; });
  if (hasNodes && ranks > machine.nodeRanks)
    add("network", "network between nodes",
        [](MachineModel &other, double times) { other.network.bandwidth *= times; });
  add("memory", "memory", [](MachineModel &other, double times) { other.memoryBandwidth *= times; });
  return all;
}

/// Composes the seconds as the search does if `few` is given, but compiles each small program only once for all
/// machines.
std::vector<double> pc::secondsOn(ArrayRef<MachineModel> machines, ModuleOp model, const FewLayers *few,
                                  const CompileOptions &options, const Plan &plan, bool callsTasks) {
  auto compile = [&](ModuleOp program, const Plan &plan, int64_t inlineOps) {
    CompileOptions one = options;
    one.plan = plan;
    one.inlineOps = inlineOps;
    one.memoryLimit = few ? 0 : one.memoryLimit;
    return priceProgramOn(machines, program, one);
  };
  auto whole = [&] {
    std::vector<double> seconds;
    OwningOpRef<ModuleOp> program(model.clone());
    for (const ProgramPrice &price : compile(*program, plan, options.inlineOps))
      seconds.push_back(price.trial.seconds);
    return seconds;
  };
  if (!few)
    return whole();
  std::map<std::string, std::vector<ProgramPrice>> compiled;
  std::vector<double> seconds;
  std::string refusal;
  for (size_t i = 0; i < machines.size(); ++i) {
    Composer composer(model.getContext(), *few, batchOf(model), options, machines[i]);
    composer.setPricer([&](const SmallProgram &small) {
      std::string key = small.plan.text(model.getContext()) + std::to_string(small.layers) + " " +
                        std::to_string(small.sequences) + " " + std::to_string(small.inlineOps);
      auto [it, isNew] = compiled.try_emplace(key);
      if (isNew)
        it->second = compile(*few->take(small.layers, small.sequences), small.plan, small.inlineOps);
      return it->second.empty() ? std::optional<ProgramPrice>() : it->second[i];
    });
    ComposedPlan composed = composer.compose(plan, callsTasks, refusal);
    if (!composed.isComposed)
      return whole();
    if (!composed.trial.isLegal)
      return {};
    seconds.push_back(composed.trial.seconds);
  }
  return seconds;
}
