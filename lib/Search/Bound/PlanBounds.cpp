//===- PlanBounds.cpp - Lower bounds on seconds and bytes of plans ----------------------------===//
// Bounds come from prices of plans with a smaller part of the same work, and from the work of a step on an ideal
// machine. A bound is never above the price of the plan, so a search may skip plans by it.
//===------------------------------------------------------------------------------------------===//
#include "PlanBounds.h"
#include "Margins.h"

#include "pc/Cost/Cost.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace pc;

/// Only tactics that flags can choose take part in the comparison of splits. All other tactics have the same sizes in
/// every plan of the search.
PlanBounds::Split PlanBounds::splitOf(const PlanCore &core) {
  Split split;
  for (const auto &[axis, size] : core.plan.mesh)
    split.axes[axis] = size;
  for (const Tactic &tactic : core.plan.tactics)
    if (const TacticInfo *row = tactic.info(); row && row->fromFlags) // the others have the same sizes
      split.tactics[tactic.text()] = llvm::map_to_vector(tactic.axes(), [](StringRef axis) { return axis.str(); });
  split.microbatches = core.plan.microbatches;
  split.sequences = core.batch / split.microbatches;
  return split;
}

/// Ranks that share tokens do not reduce the work of a layer. So a price of the split without these ranks also bounds
/// this core, if each of them gets whole sequences.
SmallVector<PlanBounds::Split, 2> PlanBounds::waysOf(const PlanCore &core) {
  SmallVector<Split, 2> ways{splitOf(core)};
  int64_t sharers = 1;
  Split bare = splitOf({withoutTokenSharers(core.plan, sharers), core.batch});
  if (sharers > 1 && bare.sequences % sharers == 0) {
    bare.sequences /= sharers;
    ways.push_back(std::move(bare));
  }
  return ways;
}

/// This split is further than `other` if its number of sequences divides that of `other`, it has at least as many
/// microbatches, and the size of each axis of `other` divides the size of the same axis here. Additional tactics must
/// use axes that `other` does not have.
bool PlanBounds::Split::isFurtherThan(const Split &other) const {
  return other.sequences % sequences == 0 && other.microbatches <= microbatches &&
         llvm::all_of(other.axes,
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

/// Prices are recorded for all ranks and all sequences together, so that cores of different sizes can be compared. A
/// core that is not legal makes all further splits infinitely expensive.
void PlanBounds::learn(const PlanCore &core, const CorePrice &price) {
  priced.insert(core.key());
  Split split = splitOf(core);
  double members = 1;
  for (const auto &axis : split.axes)
    members *= static_cast<double>(axis.second);
  double all = members * static_cast<double>(batch) / static_cast<double>(split.sequences);
  split.price.seconds = price.isLegal ? price.seconds * all : std::numeric_limits<double>::infinity();
  split.price.layerSeconds = price.layerSeconds * all;
  split.price.aheadSeconds = price.aheadSeconds * all;
  split.price.forwardSeconds = price.isLegal ? price.forwardShare * split.price.seconds : 0;
  split.price.restSeconds = price.restSeconds * members;
  split.price.optimizerSeconds = price.optimizerSeconds * members;
  split.price.alone = PlanNumbers(core.plan, context).alone;
  splits.push_back(std::move(split));
}

double PlanBounds::longerAlone(const std::string &without, const std::string &with) const {
  auto a = oneRankCosts.find(without), b = oneRankCosts.find(with);
  return a == oneRankCosts.end() || b == oneRankCosts.end() ? 0 : std::max(b->second.seconds - a->second.seconds, 0.0);
}

double PlanBounds::recomputedShare(const PlanNumbers &plan) const {
  if (plan.alone == plan.kept)
    return 0;
  auto kept = oneRankCosts.find(plan.kept), again = oneRankCosts.find(plan.alone);
  if (kept == oneRankCosts.end() || again == oneRankCosts.end() || again->second.seconds <= 0)
    return margins::mostRecomputed;
  return std::clamp(margins::recomputed * (1 - kept->second.seconds / again->second.seconds), 0.0,
                    margins::mostRecomputed);
}

/// Returns the largest bound of all recorded splits that this core splits further. If the core repeats more work on
/// every rank than the recorded split, adds the seconds of this work.
CoreBound PlanBounds::known(const PlanCore &core) const {
  SmallVector<Split, 2> ways = waysOf(core);
  std::string alone = PlanNumbers(core.plan, context).alone;
  CoreBound most;
  double forward = 0;
  for (const Split &other : splits)
    if (other.price.seconds > 0 && llvm::any_of(ways, [&](const Split &way) { return way.isFurtherThan(other); })) {
      forward = std::max(forward, other.price.forwardSeconds);
      double longer = longerAlone(other.price.alone, alone);
      if (other.price.seconds + longer <= most.seconds)
        continue;
      most = other.price;
      most.seconds += longer;
      most.layerSeconds += longer / static_cast<double>(layers);
    }
  most.alone = alone;
  most.forwardSeconds = forward;
  return most;
}

double PlanBounds::ofSet(const CoreBound &known) const {
  return machine.wholeStep((known.seconds + known.optimizerSeconds) / static_cast<double>(ranks), ranks);
}

double PlanBounds::ofSet(const CoreBound &known, const PlanNumbers &plan, double enough) const {
  // Work that every rank repeats, such as recomputation, takes as long on all ranks as on one.
  double longer = longerAlone(known.alone, plan.alone);
  // Without stages, a rank has this part of a microbatch. With stages, one rank of each stage has it, all of them
  // together.
  double part = static_cast<double>(plan.shape.stages) / static_cast<double>(ranks * plan.microbatches);
  double all = part * (known.seconds + longer);
  double layer = part * (known.layerSeconds + longer / static_cast<double>(layers));
  DataTraffic traffic = trafficOf(plan);
  double besides = (plan.hasStages ? known.optimizerSeconds : known.restSeconds) / static_cast<double>(ranks);
  double sending = machine.wholeStep(traffic.seconds, ranks);
  if (sending >= enough)
    return sending;
  // Forward passes are as long with recomputation as without.
  double forwardShare = std::max(known.forwardSeconds / (known.seconds + longer), margins::leastForward);
  MicrobatchSeconds work{layer, all - layer * static_cast<double>(layers), part * known.aheadSeconds, forwardShare};
  return std::max(ofPipeline(work, besides, traffic, plan, enough), sending);
}

/// The seconds of a gather and of a sum are linear in the bytes, so they are measured once per mesh and precision, and
/// then evaluated for each plan.
PlanBounds::DataTraffic PlanBounds::trafficOf(const PlanNumbers &plan) const {
  if (plan.data < 2)
    return {};
  auto mesh = MeshAttr::get(context, plan.names, plan.sizes);
  auto [it, first] = gathers.try_emplace({mesh.getAsOpaquePointer(), plan.dataBits, plan.summingBits});
  Gather &gather = it->second;
  if (first) {
    SmallVector<StringAttr, 2> data = plan.dataAxes(), summing = plan.summingAxes();
    std::tie(gather.latency, gather.ofByte) = gatherSeconds(plan, data, machine);
    // Ranks that share tokens have more network adapters together in the same ring.
    gather.sumOfByte = std::min(gather.ofByte, gatherSeconds(plan, summing, machine).second);
    gather.sumLatency = std::min(moveSeconds(MoveKind::AllReduce, 0, mesh, data, machine),
                                 moveSeconds(MoveKind::AllReduce, 0, mesh, summing, machine));
  }
  double elements =
      margins::sentParameters * work.parameterBytes / 4 / plan.split / static_cast<double>(plan.shape.stages);
  double share = (plan.data - 1) / plan.data;
  auto microbatches = static_cast<double>(plan.microbatches);
  double sums = elements * share * plan.gradientBytes * (plan.zero >= 2 ? microbatches : 1);
  double gathered = elements * share * plan.sentWidth * (plan.zero == 3 ? 2 * microbatches : 1);
  double seconds = gather.latency + gather.sumOfByte * sums + gather.ofByte * gathered;
  double lost = machine.contendShare * copySeconds(sums + gathered, seconds, machine);
  // A parameter that is sent by itself has its own hops.
  PlanNumbers::DataBytes once = plan.dataBytesOnce(layerParameterBytes);
  double layerSums = gather.sumOfByte * once.sums, layerGather = gather.ofByte * once.gather;
  double hops = sentAlone(plan, plan.gradientBytes) * (plan.zero == 0 ? gather.sumLatency : gather.latency);
  double gatherHops = 0;
  if (plan.zero == 1 || plan.zero == 2)
    gatherHops = sentAlone(plan, plan.sentWidth) * gather.latency;
  seconds += (hops * (plan.zero >= 2 ? microbatches : 1) + gatherHops) * static_cast<double>(layers) /
             static_cast<double>(plan.shape.stages);
  if (plan.zero < 2)
    layerSums += hops;
  return {seconds, lost, layerSums, layerGather + gatherHops};
}

double PlanBounds::sentAlone(const PlanNumbers &plan, double width) const {
  return static_cast<double>(
      llvm::count_if(layerParameters, [&](double bytes) { return bytes / 4 * width / plan.split > bucketBytes; }));
}

double PlanBounds::ofCore(const CorePrice &core, const PlanNumbers &plan) const {
  double updaters = core.hasData ? 1 : plan.sharders;
  double rest = plan.hasStages ? core.optimizerSeconds : core.restSeconds;
  double optimizer = rest / static_cast<double>(plan.shape.stages) / updaters;
  DataTraffic traffic = core.hasData ? DataTraffic() : trafficOf(plan);
  MicrobatchSeconds work{core.layerSeconds, core.seconds - core.layerSeconds * static_cast<double>(layers),
                         core.aheadSeconds, core.forwardShare, /*sends=*/core.hasData};
  return ofPipeline(work, optimizer, traffic, plan, std::numeric_limits<double>::infinity());
}

/// Returns a lower bound from the seconds of a microbatch in one layer and in the rest. The last chunk has the rest,
/// except for the ops before all layers. Every stage does all its work, and waits until a first microbatch has passed
/// through the chunks before it. If gradients of weights are not separate tasks, the last microbatch must also return
/// through these chunks. Layers are not divided.
///
/// Without stages, parameters are gathered before the first of several microbatches. Sums of gradients begin in the
/// backward pass of the last microbatch; if they take longer than this pass, the step waits. With stages, the first
/// microbatch of the first chunk does not end before its parameters are gathered. On each stage, the sums of some chunk
/// begin with its last task.
double PlanBounds::ofPipeline(const MicrobatchSeconds &seconds, double optimizer, const DataTraffic &traffic,
                              const PlanNumbers &plan, double enough) const {
  const PlanShape &shape = plan.shape;
  auto microbatches = static_cast<double>(shape.microbatches);
  auto step = [&](double work, double waits) {
    double hidden = std::max(traffic.lost - machine.contendShare * waits, 0.0);
    return machine.wholeStep(work + waits + optimizer + hidden, ranks);
  };
  auto all = static_cast<double>(layers);
  double one = seconds.layer * all + seconds.rest;
  if (seconds.sends) {
    // Moves may overlap better than in the core in three cases: with many layers (few layers fill fewer buckets), while
    // stages wait, and during the next tasks. The first chunk may have a part of `seconds.rest`, namely the embedding
    // tables.
    double longest = plan.hasStages && hasOneChain ? longestStage(seconds.layer, 0, shape) : 0;
    return step(margins::coreWithData * microbatches * std::max(one / static_cast<double>(shape.stages), longest), 0);
  }
  if (!plan.hasStages) {
    double sums = std::max(traffic.layerSums * all - one * (1 - seconds.forwardShare), 0.0);
    double gathers = shape.microbatches > 1 ? traffic.layerGather * all : 0; // else during the forward pass
    return step(one * microbatches, gathers + sums);
  }
  // If two chunks have a table, its gradient is added in two sums, which takes less time than one combined sum.
  one -= seconds.ahead;
  double rest = seconds.rest - seconds.ahead;
  // Chunks may have different numbers of layers.
  double ofChunk = std::max(std::floor(all / static_cast<double>(shape.stages * shape.chunks)) - 1, 1.0);
  double waits = ofChunk * std::max(traffic.layerGather - seconds.layer, 0.0) +
                 std::max(ofChunk * (traffic.layerSums - seconds.layer) - seconds.rest, 0.0);
  if (!hasOneChain)
    ofChunk = waits = 0;
  double forwardShare = std::max(margins::forwardOfStage * seconds.forwardShare, margins::leastForward);
  double waitShare = shape.splitsWeightGradients ? forwardShare : 1 - recomputedShare(plan);
  double simple = step(margins::pipeline * leastPipelineSeconds(one * microbatches, shape, waitShare), waits);
  if (!plan.schedule || !hasOneChain || shape.stages * shape.chunks > layers || simple >= enough)
    return simple;
  simple = std::max(simple, step(margins::pipeline * microbatches * longestStage(seconds.layer, rest, shape), waits));
  // The last microbatch enters the first chunk after all others, and goes through all chunks and back. A backward pass
  // takes at least as long as the forward pass, even without the gradients of weights.
  double path = one * 2 + (microbatches - 1) * ofChunk * seconds.layer;
  return std::max(simple, step(margins::pipeline * forwardShare * path, 0));
}

/// Returns a lower bound on the seconds of the longest stage for a microbatch, for any assignment of whole layers. The
/// last stage also has the rest.
double PlanBounds::longestStage(double layer, double rest, const PlanShape &shape) const {
  if (layer <= 0)
    return rest;
  auto others = static_cast<double>(shape.stages) - 1, all = static_cast<double>(layers);
  auto chunks = static_cast<double>(shape.chunks);
  constexpr double small = 1e-9;
  auto fits = [&](double longest) {
    double ofLast = std::floor((longest - rest) / layer + small);
    return ofLast >= chunks && others * std::floor(longest / layer + small) + ofLast >= all;
  };
  // The longest stage has `count` layers, or it is the last one and also has the rest.
  double least = static_cast<double>(layers) * layer + rest;
  for (double more : {0.0, rest})
    for (int64_t count = 1; count <= layers; ++count)
      if (double longest = static_cast<double>(count) * layer + more; fits(longest)) {
        least = std::min(least, longest);
        break;
      }
  return least;
}

bool PlanBounds::callsTasks(const TaskPrice &tasks, const PlanNumbers &plan) const {
  double ofLayer = static_cast<double>(plan.microbatches) * tasks.taskOps + tasks.otherOps;
  return ofLayer * static_cast<double>(layers) > margins::callsTasks * inlineOps; // also without head and messages
}

/// Simulates the order of tasks with lower bounds on their seconds, so the result is a lower bound on the seconds of
/// the step. A stage ends when it has summed its gradients, and the first stage begins when it has gathered its
/// parameters. If tasks are functions, moves do not overlap with the next task. Tasks that are written out may be
/// shorter, because their moves continue during the next task.
///
/// For the bytes, a stage stores the bytes of its layers, and the order determines what its tasks keep at the same
/// time.
PlanBounds::TaskBound PlanBounds::ofTasks(const TaskPrice &tasks, const CorePrice &core,
                                          const PlanNumbers &plan) const {
  TaskBound atLeast{ofCore(core, plan), 0};
  const pipeline::NamedSchedule *schedule = plan.schedule;
  auto stages = static_cast<int>(plan.shape.stages), chunks = static_cast<int>(plan.shape.stages * plan.shape.chunks);
  bool calls = callsTasks(tasks, plan);
  // If tasks are written out, moves of each microbatch overlap with other tasks, and all tasks share the transposed
  // codes of a matrix.
  if (!schedule || chunks > layers || (!calls && (core.hasData || (multipliesFloat8 && plan.readsCodes))))
    return atLeast;
  double share = !calls ? margins::writtenTasks : core.hasData ? margins::calledTasksWithData : margins::calledTasks;
  pipeline::Problem problem;
  problem.stages = stages;
  problem.microbatches = static_cast<int>(plan.microbatches);
  problem.stageOf = schedule->stageOfChunks(stages, static_cast<int>(plan.shape.chunks));
  problem.split = schedule->split;
  problem.hop.assign(chunks - 1, tasks.hopSeconds);
  problem.hopBack.assign(chunks - 1, tasks.hopBackSeconds);
  auto seconds = [&](TaskKind kind, int chunk, int64_t n) {
    const TaskPrice::Seconds &one = tasks.seconds[static_cast<size_t>(kind)];
    return share *
           (static_cast<double>(n) * one.layer + (chunk == 0 ? one.first : 0) + (chunk == chunks - 1 ? one.last : 0));
  };
  auto work = [&](int chunk, int64_t n) {
    double sum = 0;
    for (TaskKind kind : pipeline::taskKinds)
      sum += seconds(kind, chunk, n);
    return sum;
  };
  DataTraffic traffic = trafficOf(plan);
  auto bytesOf = [&](const SmallVector<int64_t> &sizes, const pipeline::Order &order) {
    double most = 0;
    // Values that live only in one task do not grow with its layers if they are gathered or cut inside it.
    bool withOwn = calls && plan.zero < 2;
    double gradientShare = plan.zero >= 2 && !core.hasData ? 1 / plan.sharders : 1;
    // Parameters that are gathered once per step are stored until the backward pass of the last microbatch has read
    // them.
    bool areGathered = plan.zero >= 1 && plan.zero < 3 && plan.sentWidth < 4;
    for (int stage : {0, stages / 2}) {
      double stored = 0;
      for (int chunk = 0; chunk < chunks; ++chunk)
        if (problem.stageOf[chunk] == stage)
          stored += storedBytes(plan, layerParameterBytes * static_cast<double>(sizes[chunk]), false);
      most = std::max(
          most, stored + tasks.bytes->ofLayers(problem, order[stage], sizes, withOwn, gradientShare, areGathered));
    }
    return (calls ? margins::calledTaskBytes : margins::writtenTaskBytes) * most;
  };
  auto ofLayers = [&](const SmallVector<int64_t> &sizes) {
    double gathered = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      problem.forward[chunk] = seconds(TaskKind::Forward, chunk, sizes[chunk]);
      problem.recompute[chunk] = seconds(TaskKind::Recompute, chunk, sizes[chunk]);
      problem.backward[chunk] = seconds(TaskKind::Backward, chunk, sizes[chunk]);
      problem.weight[chunk] = seconds(TaskKind::Weight, chunk, sizes[chunk]);
      if (problem.stageOf[chunk] == problem.stageOf[0])
        gathered += traffic.layerGather * static_cast<double>(sizes[chunk]);
    }
    std::string error;
    std::optional<pipeline::Order> order = schedule->order(problem, error);
    problem.longerFirst.assign(static_cast<size_t>(pipeline::numKinds) * problem.stageOf.size(), 0);
    problem.longerFirst[problem.ofKind(TaskKind::Forward, 0)] =
        calls ? gathered : std::max(traffic.layerGather * static_cast<double>(sizes[0]) - problem.forward[0], 0.0);
    std::optional<pipeline::Timeline> times = order ? pipeline::simulate(problem, *order) : std::nullopt;
    if (!times)
      return TaskBound();
    double last = 0;
    for (int stage = 0; stage < stages; ++stage) {
      last = std::max(last, times->end[problem.id((*order)[stage].back())]);
      // The sums of a chunk follow its last task, or the beginning of that task, one after another.
      SmallVector<std::pair<double, double>> sums;
      for (int chunk = 0; chunk < chunks; ++chunk)
        if (problem.stageOf[chunk] == stage) {
          pipeline::Task task{schedule->split ? TaskKind::Weight : TaskKind::Backward, chunk, problem.microbatches - 1};
          sums.push_back({calls ? times->end[problem.id(task)] : times->start[problem.id(task)],
                          traffic.layerSums * static_cast<double>(sizes[chunk])});
        }
      llvm::sort(sums);
      double end = 0;
      for (auto [ready, seconds] : sums)
        end = std::max(end, ready) + seconds;
      last = std::max(last, end);
    }
    return TaskBound{last, bytesOf(sizes, *order)};
  };
  problem.forward = problem.recompute = problem.backward = problem.weight = std::vector<double>(chunks);
  double infinite = std::numeric_limits<double>::infinity();
  TaskBound least{infinite, infinite};
  auto tryLayers = [&](const SmallVector<int64_t> &sizes) {
    TaskBound one = ofLayers(sizes);
    least = {std::min(least.seconds, one.seconds), std::min(least.bytes, one.bytes)};
  };
  if (SmallVector<int64_t> given = givenLayers(plan.layers, layers, chunks); !given.empty())
    tryLayers(given);
  else
    llvm::for_each(dealings(layers, problem.stageOf, work), tryLayers);
  double optimizer = core.optimizerSeconds / static_cast<double>(stages) / (core.hasData ? 1 : plan.sharders);
  return {std::max(atLeast.seconds, machine.wholeStep(least.seconds + optimizer, ranks)), least.bytes};
}

double PlanBounds::guessSeconds(const CoreBound &root, const PlanNumbers &plan) const {
  double seconds = ofSet(root, plan, std::numeric_limits<double>::infinity());
  DataTraffic traffic = trafficOf(plan);
  auto stages = static_cast<double>(plan.shape.stages), microbatches = static_cast<double>(plan.microbatches);
  // Ranks that share a layer exchange its result twice in each pass.
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
  double microbatch = root.seconds / static_cast<double>(ranks) / microbatches;
  // If gradients of weights are separate tasks, stages wait longer than in the bound; with several chunks, the
  // difference is smaller.
  double waits = 0;
  if (plan.hasStages && plan.shape.splitsWeightGradients)
    waits = (plan.shape.chunks > 1 ? margins::waitOfChunks : margins::waitOfStages) * microbatch * (stages - 1);
  // Sums of gradients begin in the last backward pass. With stages, add the time by which the sums outlast this pass;
  // without stages, the bound contains it.
  if (plan.hasStages)
    waits += std::max(traffic.seconds - margins::hiddenSums * microbatch, 0.0);
  return seconds + machine.wholeStep(moves + waits, ranks);
}

/// Removes the mesh and all tactics that need an axis. What remains is the work that each rank does by itself.
PlanCore PlanBounds::onOneRank(const PlanCore &core) {
  PlanCore root = core;
  root.plan.mesh.clear();
  llvm::erase_if(root.plan.tactics, [](const Tactic &tactic) {
    const TacticInfo *row = tactic.info();
    return !row || !row->fromFlags || !tactic.axes().empty() || !tactic.list("axes").empty();
  });
  return root;
}

void PlanBounds::learnOneRank(const PlanCore &core, const CorePrice &price) {
  auto sequences = static_cast<double>(core.batch), all = static_cast<double>(layers);
  if (price.isLegal)
    oneRankCosts[PlanNumbers(core.plan, context).alone] = {price.seconds, price.activationBytes / sequences,
                                                           price.layerActivationBytes * all / sequences};
}

/// The most microbatches that a stage holds between their forward and backward passes, if all chunks take equally long.
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
  auto it = oneRankCosts.find(plan.alone);
  double sequences = static_cast<double>(batch) / static_cast<double>(plan.microbatches) / plan.data;
  double bytes = it == oneRankCosts.end() ? 0 : plan.hasStages ? it->second.layersBytes : it->second.bytes;
  return leastBytes(plan, bytes * sequences / plan.layerRanks);
}

double PlanBounds::leastBytes(const PlanNumbers &plan, const CorePrice &core) const {
  return leastBytes(plan,
                    plan.hasStages ? core.layerActivationBytes * static_cast<double>(layers) : core.activationBytes);
}

/// Returns the bytes of parameters on a rank that splits no products. All parameters together have `bytes`.
static double keptBytes(const PlanNumbers &plan, double bytes) {
  if (plan.parametersAway)
    return 0;
  double sent = bytes * plan.sentWidth / 4;
  if (plan.mastersAway)
    return sent / (plan.zero >= 3 ? plan.sharders : 1);
  // With ZeRO-1 and 2 only the parameters that products read are whole.
  if (plan.zero >= 3)
    return bytes / plan.sharders;
  return plan.zero >= 1 && plan.sentWidth < 4 ? sent + bytes / plan.sharders : bytes;
}

double PlanBounds::storedBytes(const PlanNumbers &plan, double parameterBytes, bool withGradients) const {
  double states = plan.statesAway
                      ? 0
                      : parameterBytes * work.stateBytes / work.parameterBytes / (plan.zero >= 1 ? plan.sharders : 1);
  // Gradients are added over microbatches.
  bool areSummed = withGradients && plan.microbatches > 1;
  double gradients = areSummed ? parameterBytes / (plan.zero >= 2 ? plan.sharders : 1) : 0;
  return (keptBytes(plan, parameterBytes) + states + gradients) / plan.split;
}

double PlanBounds::leastBytes(const PlanNumbers &plan, double activationBytes) const {
  auto stages = static_cast<double>(plan.shape.stages);
  // The stage that holds the most microbatches may have fewer layers, since layers are not divided.
  double held = heldBy(plan);
  if (plan.shape.stages > 1 && layers > 0 && !hasOneChain)
    held = 1; // layers of one chain may keep less than those of the other
  else if (plan.shape.stages > 1 && layers > 0)
    held =
        std::max(1.0, held * std::floor(static_cast<double>(layers) / stages) * stages / static_cast<double>(layers));
  double margin = plan.hasStages && plan.zero >= 2 ? margins::bytesWithData : margins::bytes;
  double frozen = keptBytes(plan, work.frozenBytes / stages) / plan.split;
  if (plan.activationsAway)
    activationBytes = 0;
  return margin * (storedBytes(plan, work.parameterBytes / stages, true) + frozen + activationBytes * held / stages);
}
