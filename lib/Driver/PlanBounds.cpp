//===- PlanBounds.cpp - What plans cannot stay below ------------------------------------------===//
#include "PlanBounds.h"

#include "pc/Cost/Cost.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace mlir;
using namespace pc;

PlanBounds::Split PlanBounds::splitOf(const PlanCore &core) {
  Split split;
  for (const auto &[axis, size] : core.plan.mesh)
    split.axes[axis] = size;
  for (const Tactic &tactic : core.plan.tactics)
    if (const TacticInfo *row = tactic.info(); row && row->fromFlags) // what comes with another one has its sizes
      split.tactics[tactic.text()] =
          llvm::map_to_vector(tactic.list("axis"), [](StringRef axis) { return axis.str(); });
  return split;
}

bool PlanBounds::Split::isFurtherThan(const Split &other) const {
  return llvm::all_of(other.axes,
                      [&](const auto &axis) {
                        auto it = axes.find(axis.first);
                        return it != axes.end() && it->second % axis.second == 0;
                      }) &&
         llvm::all_of(other.tactics, [&](const auto &tactic) { return tactics.count(tactic.first); }) &&
         llvm::all_of(tactics, [&](const auto &tactic) {
           return other.tactics.count(tactic.first) ||
                  llvm::none_of(tactic.second, [&](const std::string &axis) { return other.axes.count(axis); });
         });
}

void PlanBounds::learn(const PlanCore &core, const CorePrice &price) {
  priced.insert(core.key());
  Split split = splitOf(core);
  double members = 1;
  for (const auto &axis : split.axes)
    members *= static_cast<double>(axis.second);
  split.price.seconds = price.isLegal ? price.seconds * members : std::numeric_limits<double>::infinity();
  split.price.layerShare = price.isLegal ? price.layerSeconds / price.seconds : 0;
  split.price.restSeconds = price.restSeconds * members;
  splits.push_back(std::move(split));
}

PlanBounds::Known PlanBounds::known(const PlanCore &core) const {
  Split split = splitOf(core);
  Known most;
  for (const Split &other : splits)
    if (other.price.seconds > most.seconds && split.isFurtherThan(other))
      most = other.price;
  most.alone = PlanNumbers(core.plan, context).alone;
  return most;
}

double PlanBounds::ofSet(const Known &known) const {
  return machine.wholeStep((known.seconds + known.restSeconds) / static_cast<double>(ranks), ranks);
}

double PlanBounds::ofSet(const Known &known, const PlanNumbers &plan, double enough) const {
  double seconds = known.seconds;
  // What every rank does alone besides, as recomputation, takes all of them as long as one.
  auto without = roots.find(known.alone), with = roots.find(plan.alone);
  if (without != roots.end() && with != roots.end())
    seconds += std::max(with->second.seconds - without->second.seconds, 0.0);
  // Without stages a rank has this part of a microbatch; with them a rank of each stage has it together.
  double all = seconds / static_cast<double>(ranks * plan.microbatches) * static_cast<double>(plan.shape.stages);
  double layer = all * known.layerShare;
  Sent sent = sentOf(plan);
  double besides = known.restSeconds / static_cast<double>(ranks);
  double sending = machine.wholeStep(sent.seconds, ranks);
  if (sending >= enough)
    return sending;
  MicrobatchSeconds work{layer, all - layer * static_cast<double>(layers), leastForwardShare};
  return std::max(ofPipeline(work, besides, sent, plan, enough), sending);
}

PlanBounds::Sent PlanBounds::sentOf(const PlanNumbers &plan) const {
  if (plan.data < 2)
    return {};
  auto mesh = MeshAttr::get(context, plan.names, plan.sizes);
  SmallVector<StringAttr, 2> data = plan.dataAxes();
  auto [it, first] = gathers.try_emplace({mesh.getAsOpaquePointer(), plan.dataBits});
  if (first) {
    double least = moveSeconds(MoveKind::AllGather, 0, mesh, data, machine);
    it->second = {least, (moveSeconds(MoveKind::AllGather, 1e9, mesh, data, machine) - least) / 1e9};
  }
  // Parameters that no axis divides are sent as a whole, or not at all.
  constexpr double margin = 0.9;
  double elements = margin * work.parameterBytes / 4 / plan.split / static_cast<double>(plan.shape.stages);
  double share = (plan.data - 1) / plan.data;
  auto microbatches = static_cast<double>(plan.microbatches);
  double sums = elements * share * (plan.halfGradients ? 2 : 4) * (plan.zero >= 2 ? microbatches : 1);
  double gathered = elements * share * (plan.halfParameters ? 2 : 4) * (plan.zero == 3 ? 2 * microbatches : 1);
  double seconds = it->second.first + it->second.second * (sums + gathered);
  double layerSums = 0;
  if (plan.zero < 2) // DDP sends them twice, round a ring
    layerSums = it->second.second * layerParameterBytes / 4 / plan.split * share * (plan.halfGradients ? 2 : 4) *
                (plan.zero == 0 ? 2 : 1);
  return {seconds, machine.contendShare * copySeconds(sums + gathered, seconds, machine), layerSums};
}

double PlanBounds::ofCore(const CorePrice &core, const PlanNumbers &plan) const {
  bool coreHasData = plan.zero >= 2; // it sums gradients, or gathers parameters, for each microbatch
  double updaters = coreHasData ? 1 : plan.sharders;
  double optimizer = core.restSeconds / static_cast<double>(plan.shape.stages) / updaters;
  Sent sent = coreHasData ? Sent() : sentOf(plan);
  MicrobatchSeconds work{core.layerSeconds, core.seconds - core.layerSeconds * static_cast<double>(layers),
                         core.forwardShare};
  return ofPipeline(work, optimizer, sent, plan, std::numeric_limits<double>::infinity());
}

/// Of a microbatch's seconds for a layer and for the rest, which the last chunk has; layers are dealt out by cost
/// or as the plan says. Every stage does all its work, and waits until a first microbatch has come through the chunks
/// before it; where gradients of weights are not apart, the last one must go back through them, too.
///
/// Sums of a chunk's gradients begin in the last microbatch's backward pass. The chunk that ends last, on a stage and
/// on the way back to the first one, has no other work behind that: what they take longer than it is a wait.
double PlanBounds::ofPipeline(const MicrobatchSeconds &seconds, double optimizer, const Sent &sent,
                              const PlanNumbers &plan, double enough) const {
  const PlanShape &shape = plan.shape;
  auto microbatches = static_cast<double>(shape.microbatches);
  auto chunks = static_cast<int>(shape.stages * shape.chunks);
  auto step = [&](double work, double waits) {
    double hidden = sent.seconds > waits ? 1 - waits / sent.seconds : 0;
    return machine.wholeStep(work + waits + optimizer + sent.lost * hidden, ranks);
  };
  double one = seconds.layer * static_cast<double>(layers) + seconds.rest;
  if (!plan.hasStages)
    return step(one * microbatches, std::max(sent.layerSums * static_cast<double>(layers) - one, 0.0));
  double simple = step(leastPipelineSeconds(one * microbatches, shape), 0);
  if (!plan.schedule || chunks > layers || simple >= enough)
    return simple;
  auto work = [&](int chunk, int64_t n) {
    return seconds.layer * static_cast<double>(n) + (chunk == chunks - 1 ? seconds.rest : 0);
  };
  SmallVector<int64_t> sizes;
  if (plan.layers != "cost")
    sizes = givenLayers(plan.layers, layers, chunks);
  if (sizes.empty())
    sizes = dealOut(layers, chunks, work);
  const pipeline::NamedSchedule *schedule = plan.schedule;
  std::vector<int> stageOf = schedule->stageOfChunks(static_cast<int>(shape.stages), static_cast<int>(shape.chunks));
  std::vector<double> ofStage(shape.stages), ahead(shape.stages, -1);
  double before = 0, waits = std::numeric_limits<double>::infinity();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    double &first = ahead[stageOf[chunk]];
    first = first < 0 ? before : first;
    double ofChunk = work(chunk, sizes[chunk]);
    before += schedule->split ? seconds.forwardShare * ofChunk : ofChunk;
    ofStage[stageOf[chunk]] += ofChunk;
    waits = std::min(waits, std::max(sent.layerSums * static_cast<double>(sizes[chunk]) - ofChunk, 0.0));
  }
  double most = 0;
  for (auto [first, ofChunks] : llvm::zip_equal(ahead, ofStage))
    most = std::max(most, first + microbatches * ofChunks);
  return step(most, waits);
}

double PlanBounds::guessSeconds(const Known &root, const PlanNumbers &plan) const {
  double seconds = ofSet(root, plan, std::numeric_limits<double>::infinity());
  Sent sent = sentOf(plan);
  auto stages = static_cast<double>(plan.shape.stages), microbatches = static_cast<double>(plan.microbatches);
  // Those who share a layer send what it hands on forth and back, two times in each pass.
  double moves = 0;
  if (plan.layerRanks > 1) {
    SmallVector<StringAttr, 2> data = plan.dataAxes(), inner;
    llvm::copy_if(plan.names, std::back_inserter(inner),
                  [&](StringAttr name) { return !llvm::is_contained(data, name); });
    auto mesh = MeshAttr::get(context, plan.names, plan.sizes);
    if (plan.hasStages) // outermost
      inner.erase(inner.begin());
    double bytes = layerBytes / plan.data / (plan.layerRanks / plan.split) / microbatches;
    double one = moveSeconds(MoveKind::AllReduce, 2 * bytes * (1 - 1 / plan.layerRanks), mesh, inner, machine);
    moves = 4 * one * static_cast<double>(layers) * (microbatches / stages + 1);
  }
  // Sums of gradients begin in the last backward pass.
  double hidden = 0.6 * root.seconds / static_cast<double>(ranks) / microbatches;
  return seconds + machine.wholeStep(moves + std::max(sent.seconds - hidden, 0.0), ranks);
}

PlanCore PlanBounds::rootOf(const PlanCore &core) {
  PlanCore root = core;
  root.plan.mesh.clear();
  llvm::erase_if(root.plan.tactics, [](const Tactic &tactic) {
    const TacticInfo *row = tactic.info();
    return !row || !row->fromFlags || !tactic.list("axis").empty() || !tactic.list("axes").empty();
  });
  return root;
}

void PlanBounds::learnRoot(const PlanCore &core, const CorePrice &price) {
  if (price.isLegal)
    roots[PlanNumbers(core.plan, context).alone] = {price.seconds,
                                                    price.activationBytes / static_cast<double>(core.batch)};
}

/// The most microbatches that a stage holds between their forward and backward passes, where all chunks take equally
/// long.
double PlanBounds::heldBy(const PlanNumbers &plan) const {
  if (!plan.schedule)
    return 1;
  auto stages = static_cast<int>(plan.shape.stages), perStage = static_cast<int>(plan.shape.chunks);
  auto microbatches = static_cast<int>(std::min<int64_t>(plan.microbatches, 2 * plan.shape.stages));
  auto [it, first] = held.try_emplace({plan.schedule, stages, perStage, microbatches}, 1);
  if (!first)
    return it->second;
  pipeline::Problem problem =
      pipeline::uniform(microbatches, plan.schedule->stageOfChunks(stages, perStage), 1, 1, 1, plan.schedule->split);
  problem.held = problem.releasedByBackward = std::vector<double>(problem.chunks(), 1.0 / perStage);
  std::string error;
  if (std::optional<pipeline::Order> order = plan.schedule->order(problem, error))
    it->second = *llvm::max_element(pipeline::peaks(problem, *order));
  return it->second;
}

double PlanBounds::leastBytes(const PlanNumbers &plan) const {
  auto it = roots.find(plan.alone);
  double sequences = static_cast<double>(batch) / static_cast<double>(plan.microbatches) / plan.data;
  return leastBytes(plan, it == roots.end() ? 0 : it->second.bytes * sequences / plan.layerRanks);
}

double PlanBounds::leastBytes(const PlanNumbers &plan, double activationBytes) const {
  auto stages = static_cast<double>(plan.shape.stages);
  double held = 1;
  if (plan.schedule && plan.schedule->inFlight)
    held =
        static_cast<double>(std::min<int64_t>(plan.schedule->inFlight(static_cast<int>(stages), 0), plan.microbatches));
  double parameters = work.parameterBytes / (plan.zero >= 3 ? plan.sharders : 1);
  double states = work.stateBytes / (plan.zero >= 1 ? plan.sharders : 1);
  // They are added up over microbatches.
  double gradients = plan.microbatches > 1 ? work.parameterBytes / (plan.zero >= 2 ? plan.sharders : 1) : 0;
  // Stages need not be equal, and what is composed is no bound.
  constexpr double margin = 0.85;
  return margin * ((parameters + states + gradients) / plan.split + activationBytes * held) / stages;
}
