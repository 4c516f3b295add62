//===- ComposePlan.cpp - Composes the price of a plan from programs of few layers ------------===//
// Compiles programs with few layers, extrapolates seconds and bytes to all layers, and simulates pipelines from the
// tasks of their chunks.
//===-----------------------------------------------------------------------------------------===//
#include "ComposePlan.h"

#include "../Space/PlanNumbers.h"
#include "pc/Pipeline/Schedule.h"
#include "pc/Plan/Tactics.h"
#include "llvm/ADT/StringExtras.h"
#include <atomic>

using namespace mlir;
using namespace pc;

//===---------------------------------------------------------------------------===//
// Programs of few layers
//===---------------------------------------------------------------------------===//

/// Linear interpolation through (a, ya) and (b, yb), evaluated at x. Returns ya if a == b.
static double interpolate(double x, int64_t a, double ya, int64_t b, double yb) {
  return a == b ? ya : ya + (x - static_cast<double>(a)) * (yb - ya) / static_cast<double>(b - a);
}

/// Compiles one small program without a memory limit. A program that several plans share is placed once and then
/// reused.
std::optional<ProgramPrice> Composer::price(const SmallProgram &program, std::string &refusal) {
  if (!goesOn())
    return std::nullopt;
  if (pricer)
    return pricer(program);
  CompileOptions one = options;
  one.plan = program.plan;
  one.inlineOps = program.inlineOps;
  one.memoryLimit = 0; // the limit applies only to whole models
  AskedOfPrice asked{program.byParts, /*memory=*/true};
  // In grids, the number of sequences decides whether weights or activations are sent.
  bool isPlacedOnce = program.isShared && !program.plan.splitsEmbed();
  if (OwningOpRef<ModuleOp> module = isPlacedOnce ? placed.take(one, program.layers, program.sequences) : nullptr)
    return priceProgram(*module, one, machine, refusal, goesOn, asked, Phase::Placed);
  return priceProgram(*few.take(program.layers, program.sequences), one, machine, refusal, goesOn, asked);
}

/// Prices two programs that differ only in their number of layers. If there is a sharer, another thread may price the
/// second program. If one of them is refused, the other is not needed.
Composer::BothPrices Composer::price(const SmallProgram &a, const SmallProgram &b, std::string &refusal) {
  BothPrices both;
  std::string whyNotB;
  std::atomic<bool> isRefused = false;
  auto priceA = [&] {
    both.first = price(a, refusal);
    isRefused = !both.first;
  };
  auto priceB = [&](Composer &composer) {
    if (!isRefused)
      both.second = composer.price(b, whyNotB);
  };
  if (sharer) {
    sharer(priceB, priceA);
  } else {
    priceA();
    priceB(*this);
  }
  programs += both.first ? 2 : 1; // programs that another thread priced also count
  if (!both.first)
    both.second.reset();
  else if (refusal.empty())
    refusal = whyNotB;
  return both;
}

/// The numbers of layers from which prices for all other numbers are extrapolated. With so many layers, the neighbours
/// of a layer, and their buckets, are as in the whole model. For cores only the time of a layer is needed, so one layer
/// with neighbours on both sides is enough.
static constexpr int64_t fewer = 3, more = 5, fewerOfCore = 2, moreOfCore = 3;

/// Two small programs give the time of a layer and of the rest: the time of a layer is the difference of the programs,
/// divided by the difference of their numbers of layers.
CorePrice Composer::priceCore(const PlanCore &core, std::string &refusal) {
  CorePrice result;
  result.hasData = PlanNumbers(core.plan, context).hasData();
  programs = 0;
  if (core.batch <= 0)
    return result;
  auto ofLayers = [&](int64_t layers) {
    return SmallProgram{core.plan,         layers,           core.batch, options.inlineOps,
                        /*byParts=*/false, /*isShared=*/true};
  };
  auto [a, b] = price(ofLayers(fewerOfCore), ofLayers(moreOfCore), refusal);
  result.compositions = programs;
  if (!a || !b)
    return result;
  auto all = static_cast<double>(few.layers());
  result.isLegal = true;
  auto rest = [&](const ProgramPrice &price) {
    return price.programSeconds - static_cast<double>(core.plan.microbatches) * price.microbatchSeconds;
  };
  result.seconds = interpolate(all, fewerOfCore, a->microbatchSeconds, moreOfCore, b->microbatchSeconds);
  result.layerSeconds = (b->microbatchSeconds - a->microbatchSeconds) / (moreOfCore - fewerOfCore);
  result.aheadSeconds = std::clamp(interpolate(0, fewerOfCore, a->aheadSeconds, moreOfCore, b->aheadSeconds), 0.0,
                                   std::max(result.seconds - all * result.layerSeconds, 0.0));
  result.restSeconds = std::max(interpolate(all, fewerOfCore, rest(*a), moreOfCore, rest(*b)), 0.0);
  result.optimizerSeconds = std::clamp(
      interpolate(all, fewerOfCore, a->optimizerSeconds, moreOfCore, b->optimizerSeconds), 0.0, result.restSeconds);
  auto forward = [](const ProgramPrice &price) { return price.forwardShare * price.microbatchSeconds; };
  result.forwardShare = interpolate(all, fewerOfCore, forward(*a), moreOfCore, forward(*b)) / result.seconds;
  result.activationBytes = interpolate(all, fewerOfCore, a->activationBytes, moreOfCore, b->activationBytes);
  result.layerActivationBytes = (b->activationBytes - a->activationBytes) / (moreOfCore - fewerOfCore);
  return result;
}

/// Composes with or without stages. `composed` keeps the plan, because composing may assign layers to stages.
ComposedPlan Composer::compose(const Plan &plan, bool callsTasks, std::string &refusal) {
  ComposedPlan composed{{}, plan};
  programs = 0;
  if (plan.pipeline())
    composePipeline(composed, callsTasks, refusal);
  else
    composeWithoutStages(composed, refusal);
  composed.compositions = programs;
  return composed;
}

/// The seconds and bytes of the whole model are extrapolated linearly from those with `fewer` and `more` layers. A
/// model that has no more layers than these is compiled whole.
void Composer::composeWithoutStages(ComposedPlan &composed, std::string &refusal) {
  composed.isComposed = few.layers() > more;
  if (!composed.isComposed)
    return;
  auto ofLayers = [&](int64_t layers) {
    return SmallProgram{composed.plan, layers, batch, options.inlineOps, /*byParts=*/true};
  };
  auto [a, b] = price(ofLayers(fewer), ofLayers(more), refusal);
  if (!a || !b)
    return;
  auto whole = [&, &a = a, &b = b](auto of) {
    return interpolate(static_cast<double>(few.layers()), fewer, of(*a), more, of(*b));
  };
  PlanTrial &trial = composed.trial;
  trial.isLegal = true;
  trial.seconds = whole([](const ProgramPrice &price) { return price.trial.seconds; });
  trial.products = whole([](const ProgramPrice &price) { return price.trial.products; });
  trial.moves = whole([](const ProgramPrice &price) { return price.trial.moves; });
  auto bytes = [&](int64_t ArenaParts::*part) {
    return whole([&](const ProgramPrice &price) { return static_cast<double>(price.arena.*part + price.besideArena); });
  };
  trial.bytes = static_cast<int64_t>(std::max(bytes(&ArenaParts::before), bytes(&ArenaParts::after))) + b->arena.gaps;
}

//===---------------------------------------------------------------------------===//
// Pipelines
//===---------------------------------------------------------------------------===//

namespace {

using pipeline::NamedSchedule;
using pipeline::Problem;

/// Maps a stage of the full pipeline to the stage of the small pipeline that stands for it.
int stageLike(int stage, int stages, int fewStages) { return stage == 0 ? 0 : stage == stages - 1 ? fewStages - 1 : 1; }

/// Returns the mean number of layers of the chunks of a stage.
double layersOf(int stage, const Problem &problem, ArrayRef<int64_t> layers) {
  double sum = 0, chunks = 0;
  for (auto [of, count] : llvm::zip_equal(problem.stageOf, layers))
    if (of == stage) {
      sum += static_cast<double>(count);
      ++chunks;
    }
  return sum / chunks;
}

/// Predicts the seconds of a pipeline's chunks with any number of layers, from two small pipelines.
class ChunkCosts {
public:
  /// The small pipelines have `a` and `b` layers in each chunk; `small` assigns their chunks to stages.
  ChunkCosts(const NamedSchedule &schedule, Problem small, int64_t a, const ProgramPrice &ofA, int64_t b,
             const ProgramPrice &ofB)
      : schedule(schedule), small(std::move(small)), a(a), b(b), ofA(ofA), ofB(ofB) {}

  /// Maps a chunk of the full pipeline to the chunk of the small pipeline that stands for it. That chunk is on the
  /// corresponding stage, after the same number of other chunks.
  int role(const Problem &problem, int chunk) const {
    int stage = problem.stageOf[chunk], like = stageLike(stage, problem.stages, small.stages);
    auto after = std::count(problem.stageOf.begin(), problem.stageOf.begin() + chunk, stage);
    int found = 0;
    for (int other = 0; other < small.chunks(); ++other)
      if (small.stageOf[other] == like) {
        found = other;
        if (after-- == 0)
          break;
      }
    return found;
  }
  double seconds(TaskKind kind, int role, double layers) const {
    return std::max(of(kind, role, layers, [](const ProgramPrice::TaskSeconds &task) { return task.middle; }), 0.0);
  }
  /// Extra seconds of the task of the first microbatch; may be negative.
  double longerFirst(TaskKind kind, int role, double layers) const {
    return of(kind, role, layers, [](const ProgramPrice::TaskSeconds &task) { return task.first - task.middle; });
  }
  double longerLast(TaskKind kind, int role, double layers) const {
    return of(kind, role, layers, [](const ProgramPrice::TaskSeconds &task) { return task.last - task.middle; });
  }
  /// Seconds of all tasks of a chunk for one microbatch.
  double work(int role, double layers) const {
    double sum = 0;
    for (TaskKind kind : pipeline::taskKinds)
      sum += seconds(kind, role, layers);
    return sum;
  }
  /// Sets the seconds of the tasks of `problem`, whose chunks have `layers` layers.
  void fill(Problem &problem, ArrayRef<int64_t> layers) const;
  /// Adds the extra seconds of the tasks of the first and last microbatch.
  void fillEnds(Problem &problem, ArrayRef<int64_t> layers) const;
  /// Ops of a stage's program if its chunks have `layers` layers each.
  double ops(int stage, double layers, double microbatches) const {
    auto all = [&](const ProgramPrice &price) {
      return price.taskOps[stage] * microbatches / small.microbatches + price.otherOps[stage];
    };
    return interpolate(layers, a, all(ofA), b, all(ofB));
  }
  /// Returns the seconds of a step: those of its tasks, and of the sums of gradients and the optimizer that follow the
  /// tasks on each stage. `rest` has the other seconds of small steps; it is empty while these are being computed.
  std::optional<double> stepSeconds(const Problem &problem, const std::optional<pipeline::Order> &order,
                                    ArrayRef<int64_t> layers, std::optional<double> rest = {}) const;
  /// Returns the seconds of a step outside its tasks, which are the seconds by which the steps of the small pipelines
  /// are longer than their tasks.
  std::optional<double> rest(double layers) const;

private:
  std::optional<double> restOf(int64_t layers, const ProgramPrice &price) const;
  template <typename Part> double of(TaskKind kind, int role, double layers, Part part) const {
    auto ofProgram = [&](const ProgramPrice &price) {
      auto it = price.taskSeconds.find({kind, role});
      return it == price.taskSeconds.end() ? 0 : part(it->second);
    };
    return interpolate(layers, a, ofProgram(ofA), b, ofProgram(ofB));
    /// Every chunk takes the seconds of the chunk that stands for it, at its own number of layers.
  }

  const NamedSchedule &schedule;
  Problem small;
  int64_t a, b;
  const ProgramPrice &ofA, &ofB;
};

void ChunkCosts::fill(Problem &problem, ArrayRef<int64_t> layers) const {
  int chunks = problem.chunks();
  auto of = [&](TaskKind kind) {
    std::vector<double> all;
    for (int chunk = 0; chunk < chunks; ++chunk)
      all.push_back(seconds(kind, role(problem, chunk), static_cast<double>(layers[chunk])));
    return all;
  };
  /// The first microbatch may be shorter than the others, but no task gets less than 0 seconds.
  problem.forward = of(TaskKind::Forward);
  problem.recompute = of(TaskKind::Recompute);
  problem.backward = of(TaskKind::Backward);
  problem.weight = of(TaskKind::Weight);
  problem.hop.assign(chunks - 1, ofA.hopSeconds);
  problem.hopBack.assign(chunks - 1, ofA.hopBackSeconds);
}

void ChunkCosts::fillEnds(Problem &problem, ArrayRef<int64_t> layers) const {
  int chunks = problem.chunks();
  problem.longerFirst.assign(static_cast<size_t>(pipeline::numKinds) * problem.stageOf.size(), 0);
  problem.longerLast = problem.longerFirst;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (TaskKind kind : pipeline::taskKinds) {
      /// Simulates the order, and adds on each stage what follows its last task (sums of gradients, optimizer). The
      /// step ends with its last stage.
      auto task = static_cast<size_t>(problem.ofKind(kind, chunk));
      auto count = static_cast<double>(layers[chunk]);
      double least = -seconds(kind, role(problem, chunk), count);
      problem.longerFirst[task] = std::max(longerFirst(kind, role(problem, chunk), count), least);
      problem.longerLast[task] = std::max(longerLast(kind, role(problem, chunk), count), least);
    }
}

std::optional<double> ChunkCosts::stepSeconds(const Problem &problem, const std::optional<pipeline::Order> &order,
                                              ArrayRef<int64_t> layers, std::optional<double> rest) const {
  std::optional<pipeline::Timeline> times = order ? pipeline::simulate(problem, *order) : std::nullopt;
  if (!times)
    return std::nullopt;
  std::vector<double> ends(problem.stages);
  for (const pipeline::Task &task : times->sequence) {
    double &end = ends[problem.stageOf[task.chunk]];
    end = std::max(end, times->end[problem.id(task)]);
  }
  double last = 0;
  for (int stage = 0; stage < problem.stages; ++stage) {
    int like = stageLike(stage, problem.stages, small.stages);
    double tail = interpolate(layersOf(stage, problem, layers), a, ofA.tailSeconds[like], b, ofB.tailSeconds[like]);
    double end = ends[stage] + std::max(tail, 0.0) + rest.value_or(0);
    // Moves that overlapped with waits of a small stage may not be hidden in the whole pipeline.
    double hidden =
        /// Simulates the small pipeline with its own times. What its program takes longer than this simulation is the
        /// rest.
        interpolate(layersOf(stage, problem, layers), a, ofA.movesBesideIdle[like], b, ofB.movesBesideIdle[like]);
    if (rest && hidden > *rest)
      end += hidden - *rest;
    last = std::max(last, end);
  }
  return last;
}

std::optional<double> ChunkCosts::restOf(int64_t layers, const ProgramPrice &price) const {
  Problem problem = small;
  SmallVector<int64_t> all(small.chunks(), layers);
  fill(problem, all);
  std::string error;
  std::optional<pipeline::Order> order = schedule.order(problem, error);
  fillEnds(problem, all);
  std::optional<double> seconds = stepSeconds(problem, order, all);
  return seconds ? std::optional(price.programSeconds - *seconds) : std::nullopt;
}

std::optional<double> ChunkCosts::rest(double layers) const {
  std::optional<double> atA = restOf(a, ofA), atB = restOf(b, ofB);
  if (!atA || !atB)
    return std::nullopt;
  return interpolate(layers, a, *atA, b, *atB);
}

std::string listed(ArrayRef<int64_t> numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// Makes a pipeline without times.
Problem shapeOf(const NamedSchedule &schedule, int stages, int chunksPerStage, int64_t microbatches, bool train) {
  Problem problem;
  problem.stages = stages;
  problem.microbatches = static_cast<int>(microbatches);
  problem.stageOf = schedule.stageOfChunks(stages, chunksPerStage);
  problem.split = schedule.split;
  problem.training = train;
  return problem;
}

/// A stage gathers the parameters of its chunks one after another from the beginning of a step on, in `gather` seconds
/// per layer. The first microbatch's task of a chunk does not end before its parameters are gathered. If tasks are
/// functions, none begins before all parameters are gathered. With few layers, work that does not grow with the layers
/// may hide this.
void waitForParameters(Problem &problem, const pipeline::Order &order, ArrayRef<int64_t> layers, double gather,
                       bool callsTasks) {
  std::optional<pipeline::Timeline> times = pipeline::simulate(problem, order);
  if (!times)
    return;
  std::vector<double> gathered(problem.stages);
  if (callsTasks)
    for (auto [stage, count] : llvm::zip_equal(problem.stageOf, layers))
      gathered[stage] += gather * static_cast<double>(count);
  double end = 0;
  for (int chunk = 0; chunk < problem.chunks(); ++chunk) {
    pipeline::Task task{TaskKind::Forward, chunk, 0};
    double start = std::max(times->start[problem.id(task)], chunk ? end + problem.hop[chunk - 1] : 0);
    double &parameters = gathered[problem.stageOf[chunk]];
    if (!callsTasks)
      parameters += gather * static_cast<double>(layers[chunk]);
    end = start + problem.seconds(task);
    double there = callsTasks ? parameters + problem.forward[chunk] : parameters;
    if (end < there) {
      problem.longerFirst[problem.ofKind(task.kind, chunk)] += there - end;
      end = there;
    }
  }
  /// Greedy: each chunk begins with one layer, and each further layer is added to the chunk whose stage is then the
  /// shortest. Among chunks of equal stages, the shorter chunk gets it.
}

/// Layers in the chunks of small pipelines, unless the chunks of the whole pipeline have fewer; `moreInTasks` is for
/// pipelines that price tasks.
constexpr int64_t fewInChunk = 1, moreInChunk = 3, moreInTasks = 2;

} // namespace

SmallVector<int64_t> pc::dealOut(int64_t layers, ArrayRef<int> stageOf, bool toLate,
                                 llvm::function_ref<double(int, int64_t)> seconds) {
  size_t chunks = stageOf.size();
  SmallVector<int64_t> sizes(chunks, 1);
  std::vector<double> ofStage(chunks), now, next; // seconds of each chunk, now and with one more layer
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    now.push_back(seconds(static_cast<int>(chunk), 1));
    next.push_back(seconds(static_cast<int>(chunk), 2));
    ofStage[stageOf[chunk]] += now[chunk];
  }
  constexpr double equal = 1e-4; // relative difference of equal seconds
  for (int64_t left = layers - std::ssize(sizes); left > 0; --left) {
    auto withOneMore = [&](size_t chunk) { return ofStage[stageOf[chunk]] - now[chunk] + next[chunk]; };
    auto isBetter = [&](size_t a, size_t b) {
      double more = withOneMore(a) - withOneMore(b), longer = next[a] - next[b];
      if (stageOf[a] != stageOf[b] && std::abs(more) > equal * withOneMore(b))
        return more < 0;
      return std::abs(longer) > equal * next[b] ? longer < 0 : (a > b) == toLate;
    };
    size_t least = 0;
    for (size_t chunk = 1; chunk < chunks; ++chunk)
      if (isBetter(chunk, least))
        /// One assignment makes the longest stage short, the other the longest chunk, each with extra layers in early
        /// or late chunks. Equal assignments are tried once.
        least = chunk;
    ofStage[stageOf[least]] = withOneMore(least);
    now[least] = next[least];
    next[least] = seconds(static_cast<int>(least), ++sizes[least] + 1);
  }
  return sizes;
}

SmallVector<SmallVector<int64_t>, 4> pc::dealings(int64_t layers, ArrayRef<int> stageOf,
                                                  llvm::function_ref<double(int, int64_t)> seconds) {
  SmallVector<SmallVector<int64_t>, 4> all;
  /// `stages=layers` divides the layers evenly. A list gives the layers of each chunk, and anything else leaves the
  /// choice to the cost.
  auto chunks = llvm::to_vector(llvm::seq<int>(0, static_cast<int>(stageOf.size())));
  for (ArrayRef<int> parts : {stageOf, ArrayRef<int>(chunks)})
    for (bool toLate : {true, false})
      if (SmallVector<int64_t> dealt = dealOut(layers, parts, toLate, seconds); !llvm::is_contained(all, dealt))
        all.push_back(std::move(dealt));
  return all;
}

SmallVector<int64_t> pc::givenLayers(StringRef stages, int64_t layers, int chunks) {
  SmallVector<int64_t> sizes;
  if (stages == "layers") {
    for (int c = 0; c < chunks; ++c)
      sizes.push_back(layers * (c + 1) / chunks - layers * c / chunks);
    return sizes;
  }
  /// Two stages are enough: they give the seconds of a layer, and the extra seconds of the first and last chunk. The
  /// schedule is one that does or does not defer gradients of weights, as in the plan.
  SmallVector<StringRef> parts;
  stages.split(parts, ',');
  for (StringRef part : parts)
    if (part.trim().getAsInteger(10, sizes.emplace_back()))
      return {};
  return std::ssize(sizes) == chunks ? sizes : SmallVector<int64_t>();
}

TaskPrice Composer::priceTasks(const Plan &plan, const PlanCore &core, std::string &refusal) {
  TaskPrice result;
  programs = 0;
  const Tactic tactic = *plan.pipeline();
  const PipelineTactic given(tactic);
  const NamedSchedule *schedule = pipeline::findSchedule(given.scheduleName());
  schedule = pipeline::findSchedule(schedule->split ? "zb-h1" : "1f1b");
  constexpr int stages = 2;
  Problem problem = shapeOf(*schedule, stages, 1, 2 * stages, options.train);
  auto sizeOf = [&](int64_t layers) {
    Plan one = core.plan;
    one.mesh.insert(one.mesh.begin(), {tactic.axis().str(), stages});
    one.microbatches = problem.microbatches;
    one.tactics.clear();
    for (const Tactic &other : plan.tactics)
      if (other == tactic)
        one.tactics.push_back(PipelineTactic(given.withSchedule(schedule->name)).withStages(listed({layers, layers})));
      else if (llvm::is_contained(core.plan.tactics, other))
        one.tactics.push_back(other);
    int64_t sequences = core.batch / core.plan.microbatches * problem.microbatches;
    return SmallProgram{one, layers * stages, sequences, /*inlineOps=*/0, /*byParts=*/false, /*isShared=*/true};
  };
  if (core.batch <= 0)
    return result;
  auto [a, b] = price(sizeOf(fewInChunk), sizeOf(moreInTasks), refusal);
  result.compositions = programs;
  if (!b)
    return result;
  ChunkCosts costs(*schedule, problem, fewInChunk, *a, moreInTasks, *b);
  result.isLegal = true;
  result.bytes.emplace(problem, fewInChunk, a->memory, moreInTasks, b->memory);
  result.hopSeconds = a->hopSeconds;
  result.hopBackSeconds = a->hopBackSeconds;
  for (TaskKind kind : pipeline::taskKinds) {
    auto layer = [&](int chunk) {
      return std::max(costs.seconds(kind, chunk, moreInTasks) - costs.seconds(kind, chunk, fewInChunk), 0.0) /
             (moreInTasks - fewInChunk);
    };
    TaskPrice::Seconds &seconds = result.seconds[static_cast<size_t>(kind)];
    seconds.layer = std::min(layer(0), layer(1));
    seconds.first = std::max(costs.seconds(kind, 0, fewInChunk) - fewInChunk * seconds.layer, 0.0);
    /// Composes a plan with stages. First prices two small pipelines, then assigns layers to chunks in several ways,
    /// simulates the schedule of the whole pipeline for each, and keeps the fastest.
    seconds.last = std::max(costs.seconds(kind, 1, fewInChunk) - fewInChunk * seconds.layer, 0.0);
  }
  auto slope = [&](double few, double more) { return (more - few) / (moreInTasks - fewInChunk); };
  result.taskOps = slope(a->taskOps[0], b->taskOps[0]) / problem.microbatches;
  result.otherOps = slope(a->otherOps[0], b->otherOps[0]);
  return result;
}

void Composer::composePipeline(ComposedPlan &composed, bool callsTasks, std::string &refusal) {
  Plan &plan = composed.plan;
  const Tactic tactic = *plan.pipeline();
  const PipelineTactic asked(tactic);
  std::string axis = tactic.axis().str();
  StringRef name = asked.scheduleName(), number = asked.chunksPerStage();
  const NamedSchedule *schedule = pipeline::findSchedule(name);
  int perStage = 0;
  composed.isComposed =
      few.hasOneChain() && schedule && (number.empty() || !number.getAsInteger(10, perStage)) && options.train;
  if (!composed.isComposed)
    return;
  auto stages = static_cast<int>(plan.sizeOf(axis));
  int fewStages = std::min(stages, 3);
  Problem whole = shapeOf(*schedule, stages, perStage, plan.microbatches, options.train);
  Problem small =
      shapeOf(*schedule, fewStages, perStage, std::min<int64_t>(plan.microbatches, 2 * fewStages), options.train);
  int chunks = whole.chunks();
  int64_t most = std::min(
      {moreInChunk, few.layers() / small.chunks(), std::max(fewInChunk + 1, (few.layers() + chunks - 1) / chunks)});
  composed.isComposed = chunks <= few.layers() && most > fewInChunk;
  if (!composed.isComposed)
    return;

  auto sizeOf = [&](int64_t layers, int64_t inlineOps) {
    Plan one = plan;
    for (auto &[name, size] : one.mesh)
      size = name == axis ? fewStages : size;
    one.microbatches = small.microbatches;
    for (Tactic &other : one.tactics)
      if (other == tactic)
        other = asked.withStages(listed(SmallVector<int64_t>(small.chunks(), layers)));
    return SmallProgram{one, layers * small.chunks(), batch / plan.microbatches * small.microbatches, inlineOps,
                        /*byParts=*/layers == most};
  };
  int64_t inlineOps = callsTasks ? 0 : options.inlineOps;
  auto [a, b] = price(sizeOf(fewInChunk, inlineOps), sizeOf(most, inlineOps), refusal);
  if (!b)
    return;
  // Tasks of large programs stay functions, and moves do not continue after a function. The tasks of small programs
  // have to be functions if those of the large program will be.
  double ops = 0, mean = static_cast<double>(few.layers()) / chunks;
  for (int stage = 0; stage < stages; ++stage)
    ops += ChunkCosts(*schedule, small, fewInChunk, *a, most, *b)
               .ops(stageLike(stage, stages, fewStages), mean, static_cast<double>(whole.microbatches));
  if (!b->callsTasks && ops > static_cast<double>(inlineOps)) {
    std::tie(a, b) = price(sizeOf(fewInChunk, 0), sizeOf(most, 0), refusal);
  } else if (b->callsTasks != a->callsTasks) {
    ++programs;
    a = price(sizeOf(fewInChunk, 0), refusal);
  }
  if (!a || !b)
    return;
  ChunkCosts costs(*schedule, small, fewInChunk, *a, most, *b);
  std::string error;
  std::optional<double> rest = costs.rest(mean), seconds;
  std::optional<pipeline::Order> order;
  SmallVector<int64_t> layers;
  PlanNumbers numbers(plan, context);
  double gather = numbers.data > 1 ? numbers.dataBytesOnce(few.layerParameterBytes()).gather *
                                         gatherSeconds(numbers, numbers.dataAxes(), machine).second
                                   : 0;
  auto tryLayers = [&](const SmallVector<int64_t> &dealt) {
    Problem one = whole;
    costs.fill(one, dealt);
    std::optional<pipeline::Order> orderOfOne = schedule->order(one, error);
    costs.fillEnds(one, dealt);
    if (orderOfOne && gather > 0)
      waitForParameters(one, *orderOfOne, dealt, gather, b->callsTasks);
    std::optional<double> secondsOfOne = costs.stepSeconds(one, orderOfOne, dealt, rest);
    if (!secondsOfOne || (seconds && *secondsOfOne >= *seconds))
      return;
    layers = dealt;
    order = std::move(orderOfOne);
    seconds = secondsOfOne;
  };
  if (auto given = givenLayers(asked.stages(), few.layers(), chunks); !given.empty()) {
    tryLayers(given);
  } else {
    for (const auto &dealt : dealings(few.layers(), whole.stageOf, [&](int chunk, int64_t n) {
           return costs.work(costs.role(whole, chunk), static_cast<double>(n));
         }))
      tryLayers(dealt);
    for (Tactic &other : plan.tactics)
      if (other == tactic)
        other = asked.withStages(listed(layers));
  }
  costs.fill(whole, layers);
  costs.fillEnds(whole, layers);
  if (!rest || !seconds)
    return;
  int64_t ranks = 1;
  for (const auto &one : plan.mesh)
    ranks *= one.second;
  PlanTrial &trial = composed.trial;
  trial.isLegal = true;
  trial.seconds = machine.wholeStep(*seconds, ranks);
  trial.moves = trial.seconds * b->trial.moves / b->trial.seconds;
  trial.products = trial.seconds * b->trial.products / b->trial.seconds;
  StageBytes bytes(small, fewInChunk, a->memory, most, b->memory);
  double fullest = 0;
  for (int stage = 0; stage < stages; ++stage)
    fullest = std::max(fullest, bytes.arena(
                                    whole, (*order)[stage], stageLike(stage, stages, fewStages),
                                    [&](int chunk) { return costs.role(whole, chunk); }, layers));
  trial.bytes = static_cast<int64_t>(fullest) + b->besideArena;
}
