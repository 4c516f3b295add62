//===- PlanJobs.h - Runs the compiles of a search on several threads -----------------------------===//
// Input: jobs, each of one or two programs. Result: their prices. Each worker has its own context and model. Invariant:
// prices do not depend on the number of threads, or on which thread does a job.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANJOBS_H
#define PC_LIB_SEARCH_ORDER_PLANJOBS_H

#include "../Price/ComposePlan.h"
#include <atomic>
#include <functional>
#include <future>

namespace pc {

/// One or two programs that a thread compiles.
struct PlanJob {
  std::string key;
  PlanCore core;
  std::optional<Plan> plan; ///< std::nullopt: the job prices the core
  bool any = false;         ///< the price bounds all plans of the core, with any batch
  bool ofTasks = false;     ///< the job prices the plan's tasks
  bool callsTasks = false;  ///< the tasks of the plan's whole program are functions
  bool isDone = false;      ///< false: the search had to end before the job was done
  std::string refusal = {};
  CorePrice corePrice = {};
  TaskPrice taskPrice = {};
  ComposedPlan composed = {};

  int compositions() const { return corePrice.compositions + taskPrice.compositions + composed.compositions; }
};

class PlanWorker;

/// Runs jobs on threads, each with its own copy of the model.
class PlanWorkers {
public:
  /// Jobs run while `goesOn` returns true; all threads call it.
  PlanWorkers(llvm::StringRef model, size_t threads, const CompileOptions &options, const MachineModel &machine,
              std::function<bool()> goesOn);
  ~PlanWorkers();

  /// Runs all jobs. Plans are composed if the prices of cores are given, and compiled whole otherwise.
  void run(llvm::MutableArrayRef<PlanJob *> jobs, const std::map<std::string, CorePrice> *cores);
  /// Calls `use` with each number below `count`, on all threads.
  void each(size_t count, llvm::function_ref<void(size_t)> use) {
    forEach(count, [&](size_t i, PlanWorker &) { use(i); });
  }
  /// The composer of the calling thread. The model's layers must be equal.
  Composer &composer();
  /// Compiles the whole model while `goesOn` returns true. Returns std::nullopt if the plan is refused or if `goesOn`
  /// returned false.
  std::optional<ProgramPrice> priceWhole(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal);
  /// Compiles the whole model like priceWhole, but recomputes as little as `bytes` per rank allow. Writes the layers
  /// that recompute into the plan.
  std::optional<ProgramPrice> priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                         std::string &refusal);
  /// If there are several threads, begins to compile a plan whole in the background, because the price will probably be
  /// needed. Cancels such a compile of another plan.
  void beginWhole(const Plan &plan);
  /// Cancels a whole compile in the background.
  void giveUp() {
    if (ahead)
      ahead->isWanted = false;
  }

  /// A plan, and whether the tasks of its whole program are functions.
  using AskedPlan = std::pair<const Plan *, bool>;
  /// Returns the seconds of a step for each plan on each machine. If `composes` is true, composes them from few layers.
  /// A plan's list is empty if the plan is refused or if the search has to end.
  std::vector<std::vector<double>> secondsOn(llvm::ArrayRef<MachineModel> machines, llvm::ArrayRef<AskedPlan> plans,
                                             bool composes);

private:
  /// Calls `use` with each number below `count`, on all threads.
  void forEach(size_t count, llvm::function_ref<void(size_t, PlanWorker &)> use);

  /// A whole compile in the background.
  struct Ahead {
    std::string plan, refusal;
    std::atomic<bool> isWanted = true;
    std::future<std::optional<ProgramPrice>> price;
    ~Ahead() { isWanted = false; } // the destructor of `price` then waits for the end of the compile
  };

  std::function<bool()> goesOn;
  std::function<std::unique_ptr<PlanWorker>()> makeWorker;
  std::vector<std::unique_ptr<PlanWorker>> workers;
  std::unique_ptr<PlanWorker> other; ///< the worker of `ahead`
  std::unique_ptr<Ahead> ahead;
};

} // namespace pc

#endif
