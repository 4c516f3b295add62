//===- PlanNumbers.cpp - The numbers of a plan that bounds depend on ----------------------===//
// Tactics are read once for a family. For each plan of the family, `resize` then only multiplies sizes of axes.
//===--------------------------------------------------------------------------------------===//
#include "PlanNumbers.h"

#include "pc/Cost/Cost.h"

using namespace mlir;
using namespace pc;

/// Returns the text of the tactics that work over no axis. Leaves out the pass `without`, and offload, which bounds do
/// not count.
static std::string aloneOf(const Plan &plan, StringRef without = "") {
  std::string text;
  for (const Tactic &tactic : plan.tactics)
    if (const TacticInfo *row = tactic.info(); row && row->fromFlags && !tactic.as<OffloadTactic>() &&
                                               tactic.axes().empty() && tactic.list("axes").empty() &&
                                               tactic.pass() != without)
      text += tactic.text() + " ";
  return text;
}

/// Reads the tactics once. For every axis it notes which tactics use it, so that `resize` needs no text.
PlanNumbers::PlanNumbers(const Plan &plan, MLIRContext *context)
    : alone(aloneOf(plan)), kept(aloneOf(plan, RecomputeTactic::pass)), context(context) {
  axes.resize(plan.mesh.size());
  for (const auto &[name, size] : plan.mesh) {
    names.push_back(StringAttr::get(context, name));
    sizes.push_back(size);
  }
  for (const Tactic &tactic : plan.tactics) {
    const TacticInfo *row = tactic.info();
    SmallVector<StringRef> ofSequences = sequenceAxes(tactic);
    for (auto [axis, known] : llvm::zip_equal(axes, plan.mesh))
      axis.splitsSequences |= llvm::is_contained(ofSequences, known.first);
    if (auto precision = tactic.as<MixedPrecisionTactic>()) {
      gradientBytes = precision->halvesGradients() ? 2 : gradientBytes;
      sentWidth = precision->parameterBytes();
      readsCodes = precision->isFp8();
    }
    if (auto code = tactic.as<CodeGradientsTactic>())
      gradientBytes = static_cast<double>(code->bits()) / 8;
    if (auto offload = tactic.as<OffloadTactic>()) {
      statesAway |= offload->what() == "states";
      mastersAway |= offload->what() == "masters";
      parametersAway |= offload->what() == "parameters";
      activationsAway |= offload->what() == "activations";
    }
    if (auto zeroTactic = tactic.as<ZeroTactic>())
      zero = zeroTactic->stage();
    for (StringRef name : tactic.axes())
      for (auto [axis, known] : llvm::zip_equal(axes, plan.mesh)) {
        if (!row || known.first != name)
          continue;
        axis.splitsVocabulary |= row->splitsVocabulary;
        axis.isStages |= row->phase == Phase::Staged;
        axis.isData |= row->splitsBatch || row->shardsParameters;
        axis.shards |= row->shardsParameters;
        axis.sharesTokens |= row->sharesTokens;
      }
  }
  if (auto pipeline = plan.pipeline()) {
    hasStages = true;
    schedule = pipeline::findSchedule(pipeline->scheduleName());
    if (pipeline->chunksPerStage().getAsInteger(10, shape.chunks))
      shape.chunks = schedule ? schedule->chunksPerStage : 1;
    shape.splitsWeightGradients = !schedule || schedule->split; // unknown for a file, or for `auto`
    layers = pipeline->stages().str();
  }
  resize(SmallVector<int64_t, 6>(sizes), plan.microbatches);
}

/// Multiplies the sizes of the axes into the counts of ranks to which each axis belongs.
void PlanNumbers::resize(ArrayRef<int64_t> newSizes, int64_t newMicrobatches) {
  sizes.assign(newSizes.begin(), newSizes.end());
  microbatches = shape.microbatches = newMicrobatches;
  shape.ranks = shape.stages = 1;
  split = layerRanks = data = sharders = 1;
  sequenceRanks = 1;
  dataBits = summingBits = 0;
  for (auto [i, axis, size] : llvm::enumerate(axes, sizes)) {
    auto n = static_cast<double>(size);
    dataBits |= static_cast<uint32_t>(axis.isData && size > 1) << i;
    summingBits |= static_cast<uint32_t>((axis.isData || axis.sharesTokens) && size > 1) << i;
    shape.ranks *= size;
    shape.stages *= axis.isStages ? size : 1;
    split *= axis.splitsVocabulary ? n : 1;
    data *= axis.isData ? n : 1;
    sequenceRanks *= axis.splitsSequences ? size : 1;
    sharders *= axis.shards ? n : 1;
    layerRanks *= axis.isStages || axis.isData ? 1 : n;
  }
}

/// The names of the axes whose bits are set.
SmallVector<StringAttr, 2> PlanNumbers::axesOf(uint32_t bits) const {
  SmallVector<StringAttr, 2> found;
  for (auto [i, name] : llvm::enumerate(names))
    if (bits >> i & 1)
      found.push_back(name);
  return found;
}

/// A ring sends (data - 1) / data of the elements: twice for an all_reduce, and once for a reduce_scatter or a gather.
PlanNumbers::DataBytes PlanNumbers::dataBytesOnce(double parameterBytes) const {
  double elements = parameterBytes / 4 / split * (data - 1) / data;
  DataBytes bytes;
  if (zero < 2) // DDP sends gradients around a ring twice
    bytes.sums = elements * gradientBytes * (zero == 0 ? 2 : 1);
  if (zero == 1 || zero == 2)
    bytes.gather = elements * sentWidth;
  return bytes;
}

std::pair<double, double> pc::gatherSeconds(const PlanNumbers &plan, ArrayRef<StringAttr> axes,
                                            const MachineModel &machine) {
  auto mesh = MeshAttr::get(plan.context, plan.names, plan.sizes);
  double least = moveSeconds(MoveKind::AllGather, 0, mesh, axes, machine);
  return {least, (moveSeconds(MoveKind::AllGather, 1e9, mesh, axes, machine) - least) / 1e9};
}
