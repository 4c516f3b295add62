//===- PlanJobs.cpp - What a search compiles, by several threads ---------------------------------===//
#include "PlanJobs.h"
#include "ChooseRecompute.h"
#include "OtherMachines.h"

#include "mlir/Parser/Parser.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include <chrono>
#include <thread>

using namespace mlir;
using namespace pc;

/// A context of its own with the model in it, so that compiles in several threads do not meet.
class pc::PlanWorker {
public:
  PlanWorker(StringRef text, const CompileOptions &options, const MachineModel &machine)
      : context(dialects(), MLIRContext::Threading::DISABLED), options(options), machine(machine) {
    ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
    model = parseSourceString<ModuleOp>(text, &context);
    few = FewLayers::of(*model);
    if (few)
      composer.emplace(&context, *few, batchOf(*model), options, machine);
  }

  std::optional<ProgramPrice> priceWhole(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal) {
    CompileOptions one = options;
    one.plan = plan;
    OwningOpRef<ModuleOp> module(model->clone());
    return priceProgram(*module, one, machine, refusal, goesOn, {.parts = true, .memory = false});
  }

  /// The same by several threads, for when no other worker has anything to do.
  std::optional<ProgramPrice> priceAlone(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal) {
    context.enableMultithreading();
    std::optional<ProgramPrice> price = priceWhole(plan, goesOn, refusal);
    context.disableMultithreading();
    return price;
  }

  std::optional<ProgramPrice> priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                         std::string &refusal) {
    CompileOptions one = options;
    one.stages.memory = bytes;
    std::optional<ProgramPrice> price;
    // What lies beside the arena is known when there is one.
    for (int turn = 0; turn < 2 && (turn == 0 || (price && price->trial.bytes > bytes)); ++turn) {
      one.stages.memory -= price ? price->besideArena : 0;
      one.plan = plan;
      ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
      if (OwningOpRef<ModuleOp> module(model->clone()); chooseRecompute(*module, one))
        return std::nullopt;
      price = priceWhole(one.plan, goesOn, refusal);
    }
    plan = one.plan;
    return price && price->trial.bytes <= bytes ? price : std::nullopt;
  }

  std::vector<double> secondsOn(ArrayRef<MachineModel> machines, const Plan &plan, bool composes, bool callsTasks) {
    return pc::secondsOn(machines, *model, composes && few ? &*few : nullptr, options, plan, callsTasks);
  }

private:
  static DialectRegistry dialects() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> model;
  std::optional<FewLayers> few;
  const CompileOptions &options;
  const MachineModel &machine;

public:
  std::optional<Composer> composer; ///< keeps programs of `context`
};

PlanWorkers::PlanWorkers(StringRef model, size_t threads, const CompileOptions &options, const MachineModel &machine) {
  makeWorker = [text = model.str(), &options, &machine] {
    return std::make_unique<PlanWorker>(text, options, machine);
  };
  for (size_t i = 0; i < threads; ++i)
    workers.push_back(makeWorker());
}

PlanWorkers::~PlanWorkers() = default;

Composer &PlanWorkers::composer() { return *workers[0]->composer; }

std::optional<ProgramPrice> PlanWorkers::priceWhole(const Plan &plan, llvm::function_ref<bool()> goesOn,
                                                    std::string &refusal) {
  if (!ahead || !ahead->isWanted || ahead->plan != plan.key()) {
    giveUp();
    return workers.size() > 1 ? workers[0]->priceAlone(plan, goesOn, refusal)
                              : workers[0]->priceWhole(plan, goesOn, refusal);
  }
  constexpr auto often = std::chrono::milliseconds(20);
  while (ahead->price.wait_for(often) != std::future_status::ready)
    ahead->isWanted = goesOn();
  std::unique_ptr<Ahead> ended = std::move(ahead);
  if (refusal.empty())
    refusal = ended->refusal;
  return ended->price.get();
}

void PlanWorkers::beginWhole(const Plan &plan) {
  std::string key = plan.key();
  if (workers.size() < 2)
    return;
  ahead.reset();
  if (!other)
    other = makeWorker();
  ahead = std::make_unique<Ahead>();
  ahead->plan = std::move(key);
  ahead->price = std::async(std::launch::async, [this, plan, now = ahead.get()] {
    return other->priceWhole(plan, [now] { return now->isWanted.load(); }, now->refusal);
  });
}

std::optional<ProgramPrice> PlanWorkers::priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                                    std::string &refusal) {
  return workers[0]->priceMixed(plan, bytes, goesOn, refusal);
}

static void doJob(PlanJob &job, PlanWorker &worker, const std::map<std::string, CorePrice> *cores) {
  if (job.ofTasks) {
    job.taskPrice = worker.composer->priceTasks(*job.plan, job.core, job.refusal);
    return;
  }
  if (!job.plan) {
    job.corePrice = worker.composer->priceCore(job.core, job.refusal);
    return;
  }
  job.composed = {{}, *job.plan, /*isComposed=*/false};
  if (cores)
    job.composed = worker.composer->compose(*job.plan, job.callsTasks, job.refusal);
  if (job.composed.isComposed)
    return;
  ++job.composed.compositions;
  if (std::optional<ProgramPrice> price = worker.priceWhole(*job.plan, [] { return true; }, job.refusal))
    job.composed.trial = price->trial;
}

void PlanWorkers::run(MutableArrayRef<PlanJob *> jobs, const std::map<std::string, CorePrice> *cores) {
  forEach(jobs.size(), [&](size_t i, PlanWorker &worker) { doJob(*jobs[i], worker, cores); });
}

std::vector<std::vector<double>> PlanWorkers::secondsOn(ArrayRef<MachineModel> machines, ArrayRef<AskedPlan> plans,
                                                        bool composes) {
  std::vector<std::vector<double>> seconds(plans.size());
  forEach(plans.size(), [&](size_t i, PlanWorker &worker) {
    auto [plan, callsTasks] = plans[i];
    seconds[i] = worker.secondsOn(machines, *plan, composes, callsTasks);
  });
  return seconds;
}

void PlanWorkers::forEach(size_t count, llvm::function_ref<void(size_t, PlanWorker &)> use) {
  std::atomic<size_t> next = 0;
  auto work = [&](PlanWorker &worker) {
    for (size_t i = next++; i < count; i = next++)
      use(i, worker);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(workers.size(), count); ++i)
    threads.emplace_back(work, std::ref(*workers[i]));
  work(*workers[0]);
  for (std::thread &thread : threads)
    thread.join();
}
