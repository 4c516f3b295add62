//===- compose.cpp - Composed plans compared with the same plans compiled whole -===//
// usage: pc-compose-test MODEL SECONDS BYTES < PLANS
// A line of PLANS is a plan as options of pc-opt's phases. Prints the errors of composed prices, and fails if one is
// off by more than these percents, or if a bound is above the price of the whole program. Run by compose.test,
// compose-many.test.
//===----------------------------------------------------------------------===//
#include "Bound/PlanBounds.h"
#include "Price/ComposePlan.h"
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/Search/CompletePlan.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"

#include "llvm/Support/Format.h"
#include <chrono>
#include <iostream>

using namespace mlir;
using namespace pc;

namespace {

/// The elapsed seconds since its construction.
struct Seconds {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double operator()() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }
};

/// Bounds may be too high by this much, in percent. This is half of the gain for which the search does not continue.
constexpr double boundError = 0.75;

double percentOff(double composed, double whole) { return 100 * (composed / whole - 1); }

/// Percentages by which bounds are below the whole program's figures: the bounds on seconds that follow from cores and
/// from tasks, and the bound on bytes.
std::array<double, 3> slackOf(const CompileOptions &options, const FewLayers &few, ModuleOp model,
                              const MachineModel &machine, Composer &composer, const CorePrice &core,
                              const PlanTrial &whole) {
  StepWork work;
  std::string refusal;
  int64_t ranks = 1, batch = batchOf(model);
  for (const auto &axis : options.plan.mesh)
    ranks *= axis.second;
  if (readWork(model, options, work))
    return {-100, -100, -100};
  PlanBounds bounds(model.getContext(), work, &few, batch, ranks, options, machine);
  PlanNumbers numbers(options.plan, model.getContext());
  double ofCore = 0, ofTasks = 0, bytes = bounds.leastBytes(numbers, core);
  for (const PlanCore &bare : PlanCore::bareOf(options.plan, batch))
    if (CorePrice price = composer.priceCore(bare, refusal); price.isLegal) {
      ofCore = std::max(ofCore, bounds.ofCore(price, numbers));
      bytes = std::max(bytes, bounds.leastBytes(numbers, price));
    }
  for (bool withData : {false, true}) { // the two differ for ZeRO-2 and ZeRO-3
    PlanCore own = PlanCore::of(options.plan, batch, false, withData);
    CorePrice price = withData ? core : composer.priceCore(own, refusal);
    if (!price.isLegal || (!withData && numbers.zero < 2))
      continue;
    ofCore = std::max(ofCore, bounds.ofCore(price, numbers));
    TaskPrice tasks = options.plan.pipeline() ? composer.priceTasks(options.plan, own, refusal) : TaskPrice();
    PlanBounds::TaskBound bound{ofCore, 0};
    if (tasks.isLegal)
      bound = bounds.ofTasks(tasks, price, numbers);
    ofTasks = std::max(ofTasks, bound.seconds);
    bytes = std::max(bytes, bound.bytes);
  }
  return {-percentOff(ofCore, whole.seconds), -percentOff(ofTasks, whole.seconds),
          -percentOff(bytes, static_cast<double>(whole.bytes))};
}

/// Returns true if a core and its tasks have the same price when their programs are placed for exactly these sequences,
/// instead of interpolated from fewer and more.
bool isAsPlacedAlone(const CompileOptions &options, const FewLayers &few, ModuleOp model, const MachineModel &machine,
                     const PlanCore &core) {
  Composer composer(model.getContext(), few, batchOf(model), options, machine),
      alone(model.getContext(), few, batchOf(model), options, machine);
  std::string refusal;
  PlanCore more = core;
  more.batch *= 4;
  composer.priceCore(more, refusal);
  if (options.plan.pipeline())
    composer.priceTasks(options.plan, more, refusal);
  alone.setPricer([&](const SmallProgram &small) {
    CompileOptions one = options;
    one.plan = small.plan;
    one.inlineOps = small.inlineOps;
    one.memoryLimit = 0;
    return priceProgram(*few.take(small.layers, small.sequences), one, machine, refusal);
  });
  CorePrice a = composer.priceCore(core, refusal), b = alone.priceCore(core, refusal);
  bool same = a.isLegal == b.isLegal && a.seconds == b.seconds && a.restSeconds == b.restSeconds &&
              a.layerActivationBytes == b.layerActivationBytes;
  if (options.plan.pipeline()) {
    TaskPrice ofA = composer.priceTasks(options.plan, core, refusal),
              ofB = alone.priceTasks(options.plan, core, refusal);
    for (auto [x, y] : llvm::zip_equal(ofA.seconds, ofB.seconds))
      same &= x.layer == y.layer && x.first == y.first && x.last == y.last;
  }
  if (!same)
    llvm::outs() << llvm::format("placed alone a core takes %.6g s, and not %.6g s: ", b.seconds, a.seconds)
                 << core.key() << "\n";
  return same;
}

/// Returns the errors of seconds and bytes in percent, or none if the plan is refused.
std::optional<std::pair<double, double>> compare(ModuleOp model, const FewLayers &few, StringRef line) {
  std::string error, refusal;
  llvm::raw_string_ostream errors(error);
  CompileFlags flags;
  CompileOptions options;
  if (failed(flags.parseFromString(line, errors)) || flags.resolve(nullptr, options, error)) {
    llvm::outs() << "bad plan: " << error << "\n";
    return std::nullopt;
  }
  std::optional<MachineModel> machine = MachineModel::find(options.machine, error);
  Composer composer(model.getContext(), few, batchOf(model), options, *machine);
  Seconds composing;
  CorePrice core = composer.priceCore(PlanCore::of(options.plan, batchOf(model), false), refusal);
  double forCore = composing();
  ComposedPlan composed = composer.compose(options.plan, /*callsTasks=*/false, refusal);
  double forAll = composing();
  if (!core.isLegal || !composed.isComposed || !composed.trial.isLegal) {
    llvm::outs() << (composed.isComposed ? "refused: " : "not composed: ") << refusal << ": " << line << "\n";
    return std::nullopt;
  }
  CompileOptions one = options;
  one.plan = composed.plan;
  Seconds compiling;
  OwningOpRef<ModuleOp> module(model.clone());
  std::optional<ProgramPrice> whole = priceProgram(*module, one, *machine, refusal);
  if (!whole) {
    llvm::outs() << "refused whole: " << refusal << ": " << line << "\n";
    return std::nullopt;
  }
  double seconds = percentOff(composed.trial.seconds, whole->trial.seconds);
  double bytes = percentOff(static_cast<double>(composed.trial.bytes), static_cast<double>(whole->trial.bytes));
  double forWhole = compiling();
  if (!isAsPlacedAlone(options, few, model, *machine, PlanCore::of(options.plan, batchOf(model), false)))
    return std::nullopt;
  auto [ofCore, ofTasks, ofBytes] = slackOf(options, few, model, *machine, composer, core, whole->trial);
  llvm::outs() << llvm::format(
                      "seconds %+.2f %%  bytes %+.2f %%  core %.2f s, plan %.2f s, whole %.2f s, bounds %.1f %%, "
                      "%.1f %% and %.1f %% below: ",
                      seconds, bytes, forCore, forAll - forCore, forWhole, ofCore, ofTasks, ofBytes)
               << line << "\n";
  if (std::min(ofCore, ofTasks) < -boundError || ofBytes < 0) {
    llvm::outs() << "bound above what the program takes\n";
    return std::nullopt;
  }
  return std::pair(std::abs(seconds), std::abs(bytes));
}

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registerDialects(registry);
  registerPasses();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  llvm::SourceMgr sources;
  ToolDiagnostics diagnostics("pc-compose-test", sources, &context);
  OwningOpRef<ModuleOp> model = argc == 4 ? parseProgram(argv[1], sources, &context) : nullptr;
  std::optional<FewLayers> few = model ? FewLayers::of(*model) : std::nullopt;
  if (!few) {
    llvm::outs() << "no model of like layers\n";
    return 2;
  }
  std::vector<double> seconds, bytes;
  int count = 0;
  bool ok = true;
  for (std::string line; std::getline(std::cin, line); ++count) {
    auto off = compare(*model, *few, line);
    ok &= off.has_value();
    seconds.push_back(off ? off->first : 0);
    bytes.push_back(off ? off->second : 0);
  }
  auto say = [](StringRef what, std::vector<double> &all) {
    llvm::sort(all);
    llvm::outs() << what
                 << llvm::format(" median %.2f %%, 90 %% within %.2f %%, all within %.2f %%", all[all.size() / 2],
                                 all[all.size() * 9 / 10], all.back());
    return all.back();
  };
  llvm::outs() << count << " plans: ";
  ok &= count > 0 && say("seconds", seconds) <= std::atof(argv[2]);
  llvm::outs() << "; ";
  ok &= count > 0 && say("bytes", bytes) <= std::atof(argv[3]);
  llvm::outs() << (ok ? "\nas right as they should be\n" : "\n");
  return ok ? 0 : 1;
}
