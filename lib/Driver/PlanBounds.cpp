//===- PlanBounds.cpp - What plans cannot stay below ------------------------------------------===//
#include "PlanBounds.h"

#include "pc/Cost/Cost.h"
#include "pc/Driver/Tactics.h"
#include "pc/Pipeline/Schedule.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace mlir;
using namespace pc;

PlanShape PlanBounds::shapeOf(const Plan &plan) const {
  PlanShape shape{ranks, 1, 1, plan.microbatches};
  const Tactic *tactic = plan.pipeline();
  if (!tactic)
    return shape;
  auto [name, chunks] = tactic->option("schedule").split(':');
  const pipeline::NamedSchedule *schedule = pipeline::findSchedule(name);
  shape.stages = plan.sizeOf(tactic->option("axis"));
  if (chunks.getAsInteger(10, shape.chunks))
    shape.chunks = schedule ? schedule->chunksPerStage : 1;
  shape.splitsWeightGradients = !schedule || schedule->split; // of a file, or `auto`, nothing is known
  return shape;
}

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
  split.seconds = price.isLegal ? price.seconds * members : std::numeric_limits<double>::infinity();
  split.layerShare = price.isLegal ? price.layerSeconds / price.seconds : 0;
  split.restSeconds = price.restSeconds * members;
  splits.push_back(std::move(split));
}

PlanBounds::Split PlanBounds::known(const PlanCore &core) const {
  Split split = splitOf(core), most;
  for (const Split &other : splits)
    if (other.seconds > most.seconds && split.isFurtherThan(other))
      most = other;
  return most;
}

double PlanBounds::ofSet(const PlanCore &core) const {
  Split most = known(core);
  return machine.wholeStep((most.seconds + most.restSeconds) / static_cast<double>(ranks), ranks);
}

/// The data ranks that share a step's optimizer, besides those of the core: each updates a part, by ZeRO.
static double updatersOf(const Plan &plan) {
  double updaters = 1;
  PlanCore core = PlanCore::of(plan, 1, false);
  for (const Tactic &tactic : plan.tactics)
    if (const TacticInfo *row = tactic.info();
        row && row->shardsParameters && !llvm::is_contained(core.plan.tactics, tactic))
      for (StringRef axis : tactic.list("axis"))
        updaters *= static_cast<double>(std::max<int64_t>(plan.sizeOf(axis), 1));
  return updaters;
}

/// "pc-recompute{mode=full}"
static std::string tacticsText(const Plan &plan) {
  std::string text;
  for (const Tactic &tactic : plan.tactics)
    text += tactic.text() + " ";
  return text;
}

double PlanBounds::ofSet(const PlanCore &core, const Plan &plan) const {
  Split most = known(core);
  PlanShape shape = shapeOf(plan);
  // What every rank does alone besides, as recomputation, takes all of them as long as one.
  auto without = roots.find(tacticsText(rootOf(core).plan));
  auto with = roots.find(tacticsText(rootOf(PlanCore::of(plan, core.batch, true)).plan));
  if (without != roots.end() && with != roots.end())
    most.seconds += std::max(with->second.seconds - without->second.seconds, 0.0);
  // Without stages a rank has this part of a microbatch; with them a rank of each stage has it together.
  double all = most.seconds / static_cast<double>(ranks * shape.microbatches) * static_cast<double>(shape.stages);
  double layer = all * most.layerShare;
  Sent sent = sentOf(plan);
  double besides = most.restSeconds / static_cast<double>(ranks) + sent.lost;
  return std::max(ofPipeline(layer, all - layer * static_cast<double>(layers), besides, plan),
                  machine.wholeStep(sent.seconds, ranks));
}

PlanBounds::Sent PlanBounds::sentOf(const Plan &plan) const {
  SmallVector<StringAttr> names, data;
  SmallVector<int64_t> sizes;
  for (const auto &[axis, size] : plan.mesh) {
    names.push_back(StringAttr::get(context, axis));
    sizes.push_back(size);
  }
  double members = 1, split = 1;
  int zero = 0;
  bool halfGradients = false, half = false;
  for (const Tactic &tactic : plan.tactics) {
    const TacticInfo *row = tactic.info();
    halfGradients |= tactic.option("gradients") == "bf16";
    half |= tactic.option("compute") == "bf16";
    for (StringRef axis : tactic.list("axis")) {
      auto size = static_cast<double>(std::max<int64_t>(plan.sizeOf(axis), 1));
      if (row && (row->splitsVocabulary || row->phase == Phase::Staged))
        split *= size;
      if (!row || (!row->splitsBatch && !row->shardsParameters) || plan.sizeOf(axis) < 2)
        continue;
      members *= size;
      data.push_back(StringAttr::get(context, axis));
      tactic.option("stage").getAsInteger(10, zero);
    }
  }
  if (data.empty())
    return {};
  // Parameters that no axis divides are sent as a whole, or not at all.
  constexpr double margin = 0.9;
  double elements = margin * work.parameterBytes / 4 / split, share = (members - 1) / members;
  auto microbatches = static_cast<double>(plan.microbatches);
  double sums = elements * share * (halfGradients ? 2 : 4) * (zero >= 2 ? microbatches : 1);
  double gathers = elements * share * (half ? 2 : 4) * (zero == 3 ? 2 * microbatches : 1);
  auto mesh = MeshAttr::get(context, names, sizes);
  double seconds = moveSeconds(MoveKind::AllGather, sums + gathers, mesh, data, machine);
  return {seconds, machine.contendShare * copySeconds(sums + gathers, seconds, machine)};
}

double PlanBounds::ofCore(const CorePrice &core, const Plan &plan) const {
  double optimizer = core.restSeconds / static_cast<double>(shapeOf(plan).stages) / updatersOf(plan);
  bool hasData = llvm::any_of(PlanCore::of(plan, 1, false).plan.tactics,
                              [](const Tactic &tactic) { return tactic.info() && tactic.info()->shardsParameters; });
  Sent sent = hasData ? Sent() : sentOf(plan);
  return ofPipeline(core.layerSeconds, core.seconds - core.layerSeconds * static_cast<double>(layers),
                    optimizer + sent.lost, plan);
}

/// Of a microbatch's seconds for a `layer` and for the `rest`, which the last chunk has; layers are dealt out by cost
/// or as the plan says. Every stage does all its work, and waits until a first microbatch has come through the chunks
/// before it; where gradients of weights are not apart, the last one must go back through them, too.
double PlanBounds::ofPipeline(double layer, double rest, double optimizer, const Plan &plan) const {
  PlanShape shape = shapeOf(plan);
  auto microbatches = static_cast<double>(shape.microbatches);
  auto chunks = static_cast<int>(shape.stages * shape.chunks);
  auto [name, number] =
      plan.pipeline() ? plan.pipeline()->option("schedule").split(':') : std::pair<StringRef, StringRef>();
  const pipeline::NamedSchedule *schedule = pipeline::findSchedule(name);
  if (!schedule || chunks > layers) {
    double all = (layer * static_cast<double>(layers) + rest) * microbatches;
    return machine.wholeStep(leastPipelineSeconds(all, shape) + optimizer, ranks);
  }
  auto work = [&](int chunk, int64_t n) { return layer * static_cast<double>(n) + (chunk == chunks - 1 ? rest : 0); };
  SmallVector<int64_t> sizes = givenLayers(plan.pipeline()->option("stages"), layers, chunks);
  if (sizes.empty())
    sizes = dealOut(layers, chunks, work);
  std::vector<int> stageOf = schedule->stageOfChunks(static_cast<int>(shape.stages), static_cast<int>(shape.chunks));
  std::vector<double> ofStage(shape.stages), ahead(shape.stages, -1);
  double before = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    double &first = ahead[stageOf[chunk]];
    first = first < 0 ? before : first;
    double seconds = work(chunk, sizes[chunk]);
    before += schedule->split ? leastForwardShare * seconds : seconds;
    ofStage[stageOf[chunk]] += seconds;
  }
  double most = 0;
  for (auto [waits, seconds] : llvm::zip_equal(ahead, ofStage))
    most = std::max(most, waits + microbatches * seconds);
  return machine.wholeStep(most + optimizer, ranks);
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
    roots[tacticsText(core.plan)] = {price.seconds, price.activationBytes / static_cast<double>(core.batch)};
}

double PlanBounds::leastBytes(const Plan &plan, const PlanCore &core) const {
  auto it = roots.find(tacticsText(rootOf(core).plan));
  double members = 1; // that share the core's sequences, or their layers
  for (const auto &axis : core.plan.mesh)
    members *= static_cast<double>(axis.second);
  auto sequences = static_cast<double>(core.batch) / static_cast<double>(core.plan.microbatches);
  return leastBytes(plan, it == roots.end() ? 0 : it->second.bytes * sequences / members);
}

double PlanBounds::leastBytes(const Plan &plan, double activationBytes) const {
  double split = 1, data = 1, stages = 1;
  int zero = 0;
  for (const Tactic &tactic : plan.tactics) {
    const TacticInfo *row = tactic.info();
    for (StringRef axis : tactic.list("axis")) {
      auto size = static_cast<double>(std::max<int64_t>(plan.sizeOf(axis), 1));
      if (row && row->splitsVocabulary)
        split *= size;
      if (row && row->phase == Phase::Staged)
        stages *= size;
      if (row && row->shardsParameters)
        data *= size;
    }
    if (row && row->shardsParameters)
      tactic.option("stage").getAsInteger(10, zero);
  }
  double held = 1;
  if (const Tactic *tactic = plan.pipeline()) {
    const pipeline::NamedSchedule *schedule = pipeline::findSchedule(tactic->option("schedule").split(':').first);
    if (schedule && schedule->inFlight)
      held = static_cast<double>(std::min<int64_t>(schedule->inFlight(static_cast<int>(stages), 0), plan.microbatches));
  }
  double parameters = work.parameterBytes / (zero >= 3 ? data : 1), states = work.stateBytes / (zero >= 1 ? data : 1);
  // They are added up over microbatches.
  double gradients = plan.microbatches > 1 ? work.parameterBytes / (zero >= 2 ? data : 1) : 0;
  // Stages need not be equal, and what is composed is no bound.
  constexpr double margin = 0.85;
  return margin * ((parameters + states + gradients) / split + activationBytes * held) / stages;
}
