//===- PlanJobs.cpp - Runs the compiles of a search on several threads ---------------------------===//
// A worker owns a context with a copy of the model, and a composer. Each thread takes the job with the next number. A
// job that prices two programs offers one of them to an idle thread.
//===---------------------------------------------------------------------------------------------===//
#include "PlanJobs.h"
#include "../Price/ChooseRecompute.h"
#include "../Report/OtherMachines.h"

#include "mlir/Parser/Parser.h"
#include "pc/Driver/Registration.h"
#include "pc/Support/Diagnostics.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

using namespace mlir;
using namespace pc;

/// A context with a copy of the model. Each thread has one, so that compiles on several threads share nothing.
class pc::PlanWorker {
public:
  /// Parses the model in a separate context, without threads and messages.
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

  /// Like priceWhole, but with several threads for one compile.
  std::optional<ProgramPrice> priceAlone(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal) {
    context.enableMultithreading();
    std::optional<ProgramPrice> price = priceWhole(plan, goesOn, refusal);
    context.disableMultithreading();
    return price;
  }

  /// Compiles the plan with --recompute=auto under a limit of `bytes`. A second turn lowers the limit by the memory
  /// outside of the arena.
  std::optional<ProgramPrice> priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                         std::string &refusal) {
    CompileOptions one = options;
    one.memoryLimit = bytes;
    std::optional<ProgramPrice> price;
    // Memory outside of the arena is known only after the arena is planned.
    for (int turn = 0; turn < 2 && (turn == 0 || (price && price->trial.bytes > bytes)); ++turn) {
      one.memoryLimit -= price ? price->besideArena : 0;
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

PlanWorkers::PlanWorkers(StringRef model, size_t threads, const CompileOptions &options, const MachineModel &machine,
                         std::function<bool()> goesOn)
    : goesOn(std::move(goesOn)) {
  makeWorker = [text = model.str(), &options, &machine] {
    return std::make_unique<PlanWorker>(text, options, machine);
  };
  for (size_t i = 0; i < threads; ++i) {
    workers.push_back(makeWorker());
    if (workers.back()->composer)
      workers.back()->composer->setGoesOn(this->goesOn);
  }
}

PlanWorkers::~PlanWorkers() = default;

Composer &PlanWorkers::composer() { return *workers[0]->composer; }

/// If this plan is being compiled in the background, waits for the result, and checks every 20 ms whether the search
/// has been interrupted. Otherwise cancels the background compile and compiles here.
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

/// The background compile has a separate worker, so that the others can continue with the next round.
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
    return other->priceAlone(plan, [now] { return now->isWanted.load(); }, now->refusal);
  });
}

std::optional<ProgramPrice> PlanWorkers::priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                                    std::string &refusal) {
  return workers[0]->priceMixed(plan, bytes, goesOn, refusal);
}

/// Does one job on one thread. The job's members say whether it prices tasks, a core or a plan. A plan is composed if
/// `cores` is given and the plan has enough layers; otherwise it is compiled whole.
static void priceJob(PlanJob &job, PlanWorker &worker, const std::map<std::string, CorePrice> *cores,
                     llvm::function_ref<bool()> goesOn) {
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
  if (std::optional<ProgramPrice> price = worker.priceWhole(*job.plan, goesOn, job.refusal))
    job.composed.trial = price->trial;
}

/// Runs a job. The job counts as done if its plan is legal, or if it ran to its end. An interrupted job is not done.
static void doJob(PlanJob &job, PlanWorker &worker, const std::map<std::string, CorePrice> *cores,
                  llvm::function_ref<bool()> goesOn) {
  if (!goesOn())
    return;
  priceJob(job, worker, cores, goesOn);
  job.isDone = job.corePrice.isLegal || job.taskPrice.isLegal || job.composed.trial.isLegal || goesOn();
}

void PlanWorkers::run(MutableArrayRef<PlanJob *> jobs, const std::map<std::string, CorePrice> *cores) {
  forEach(jobs.size(), [&](size_t i, PlanWorker &worker) { doJob(*jobs[i], worker, cores, goesOn); });
}

/// Each plan is one item of work for a thread. After `goesOn` returns false, the lists of the remaining plans stay
/// empty.
std::vector<std::vector<double>> PlanWorkers::secondsOn(ArrayRef<MachineModel> machines, ArrayRef<AskedPlan> plans,
                                                        bool composes) {
  std::vector<std::vector<double>> seconds(plans.size());
  forEach(plans.size(), [&](size_t i, PlanWorker &worker) {
    auto [plan, callsTasks] = plans[i];
    if (goesOn())
      seconds[i] = worker.secondsOn(machines, *plan, composes, callsTasks);
  });
  return seconds;
}

namespace {

/// Assigns numbers to threads. When no number is left, assigns halves of other threads' jobs.
class Turns {
public:
  Turns(size_t count, llvm::function_ref<void(size_t, PlanWorker &)> use) : count(count), use(use) {}

  /// Runs on each thread until nothing is left to do.
  void work(PlanWorker &worker);
  void share(Composer &own, llvm::function_ref<void(Composer &)> half, llvm::function_ref<void()> here);

private:
  /// One half of a job that is offered to other threads.
  struct Half {
    llvm::function_ref<void(Composer &)> doIt;
    bool isDone = false;
  };

  const size_t count;
  llvm::function_ref<void(size_t, PlanWorker &)> use;
  std::mutex mutex; ///< guards the members below
  std::condition_variable changed;
  size_t next = 0, busy = 0; ///< the next number; threads that have one
  std::deque<Half *> halves; ///< halves that no thread has taken yet
};

} // namespace

/// Takes the next number. If none is left, takes a half that another thread offers. Otherwise waits until all threads
/// are idle, because a busy thread may still offer a half.
void Turns::work(PlanWorker &worker) {
  std::unique_lock lock(mutex);
  while (true) {
    if (next < count) {
      size_t number = next++;
      ++busy;
      lock.unlock();
      use(number, worker);
      lock.lock();
      --busy;
      changed.notify_all();
    } else if (!halves.empty()) {
      Half *half = halves.front();
      halves.pop_front();
      lock.unlock();
      half->doIt(*worker.composer);
      lock.lock();
      half->isDone = true;
      changed.notify_all();
    } else if (busy > 0) {
      changed.wait(lock);
    } else {
      return;
    }
  }
}

/// Offers `half` to the other threads and runs `here` itself. Then takes `half` back if no thread has begun it, and
/// otherwise waits until it is done.
void Turns::share(Composer &own, llvm::function_ref<void(Composer &)> half, llvm::function_ref<void()> here) {
  Half one{half};
  {
    std::scoped_lock lock(mutex);
    halves.push_back(&one);
    changed.notify_all();
  }
  here();
  std::unique_lock lock(mutex);
  if (auto it = llvm::find(halves, &one); it != halves.end()) {
    halves.erase(it);
    lock.unlock();
    half(own);
    return;
  }
  changed.wait(lock, [&] { return one.isDone; });
}

/// Uses at most two threads per number, since a job has at most two halves. While the threads run, each worker's
/// composer may offer halves to the others.
void PlanWorkers::forEach(size_t count, llvm::function_ref<void(size_t, PlanWorker &)> use) {
  Turns turns(count, use);
  MutableArrayRef<std::unique_ptr<PlanWorker>> some = MutableArrayRef(workers).take_front(2 * count);
  auto work = [&](PlanWorker &worker) {
    if (std::optional<Composer> &composer = worker.composer; composer && some.size() > 1)
      composer->setSharer([&](auto half, auto here) { turns.share(*composer, half, here); });
    turns.work(worker);
    if (worker.composer)
      worker.composer->setSharer(nullptr);
  };
  if (some.empty())
    return;
  std::vector<std::thread> threads;
  for (std::unique_ptr<PlanWorker> &worker : some.drop_front())
    threads.emplace_back(work, std::ref(*worker));
  work(*some.front());
  for (std::thread &thread : threads)
    thread.join();
}
