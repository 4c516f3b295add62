//===- StepWork.cpp - The work of a step, and bounds from it -----------------------------------===//
// The work is counted on the program of one device. Divided by the number of ranks and by the machine's rates, it
// bounds every plan.
//===-------------------------------------------------------------------------------------------===//
#include "Margins.h"

#include "pc/Cost/Cost.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Liveness.h"
#include "pc/Search/Search.h"

#include "mlir/IR/TypeUtilities.h"
#include <cmath>

using namespace mlir;
using namespace pc;

/// The bytes of the value that products read: codes and their scales, a copy in bf16, or the parameter.
static double bytesAsSent(ParameterOp parameter) {
  TypeRange sent = parameter->getResultTypes();
  for (Operation *user : parameter.getValue().getUsers())
    if (roundsOperand(user))
      sent = user->getResultTypes();
  double bytes = 0;
  for (Type type : sent)
    bytes += static_cast<double>(byteSize(type));
  return bytes;
}

static bool readsOnlyFloat8(EinsumOp product) {
  return product && product.getInputs().size() == 2 && llvm::all_of(product.getInputs(), float8Of);
}

/// Counts the products in a fusion, but not the fusion itself. A causal attention needs half of its scores. Products in
/// a loop over microbatches count once per microbatch.
StepWork StepWork::of(ModuleOp step) {
  StepWork work;
  step.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op)) {
      (parameter.getFrozen() ? work.frozenBytes : work.parameterBytes) +=
          static_cast<double>(byteSize(parameter.getValue().getType()));
      work.sentBytes += bytesAsSent(parameter);
    }
    if (auto state = dyn_cast<StateOp>(op))
      work.stateBytes += static_cast<double>(byteSize(state.getValue().getType()));
    double flops = isa<FusionOp>(op) ? 0 : flopsOf(op);
    if (flops == 0)
      return;
    if (isCausalAttention(op).value_or(false))
      flops /= 2;
    if (auto loop = op->getParentOfType<AccumulateOp>())
      flops *= static_cast<double>(loop.getMicrobatches());
    work.flops += flops;
    work.codeFlops += readsOnlyFloat8(dyn_cast<EinsumOp>(op)) ? flops : 0;
    work.bf16 |= getElementTypeOrSelf(op->getOperand(0)).isBF16();
  });
  return work;
}

double pc::leastProductSeconds(const StepWork &work, const MachineModel &machine) {
  double rate = work.bf16 ? std::max(machine.bf16Flops, machine.f32Flops) : machine.f32Flops;
  return (work.flops - work.codeFlops) / rate + work.codeFlops / std::max(machine.fp8Flops, rate);
}

double pc::leastSeconds(const StepWork &work, const PlanShape &shape, const MachineModel &machine) {
  auto ranks = static_cast<double>(shape.ranks);
  double products = leastProductSeconds(work, machine) / ranks;
  // At least one rank has the average share, or more, of products and parameters together. It reads and writes its
  // parameters.
  double least = products + 2 * work.parameterBytes / machine.memoryBandwidth / ranks;
  return std::max(least, leastPipelineSeconds(products * static_cast<double>(shape.stages), shape,
                                              shape.splitsWeightGradients ? margins::leastForward : 1));
}

double pc::leastPipelineSeconds(double seconds, const PlanShape &shape, double waitShare) {
  // Let m be the number of microbatches, t_s the seconds of stage s for one of them, and f the share of t_s that must
  // pass before the next stage can begin. Stage s ends after f (t_1 + ... + t_(s-1)) + m t_s. The maximum over s is
  // smallest if all are equal, which gives t_(s+1) = t_s (m-f) / m.
  auto rounds = static_cast<double>(shape.microbatches * shape.chunks), stages = static_cast<double>(shape.stages);
  if (shape.stages < 2)
    return seconds;
  return seconds / rounds * waitShare / (1 - std::pow(1 - waitShare / rounds, stages));
}
