//===- PlanJobs.h - What a search compiles, by several threads -----------------------------------===//
// Input: jobs, each of one or two programs. Result: their prices. Each worker has a context and a model of its own.
// Invariant: prices do not depend on the number of threads, or on which of them does a job.
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
  std::optional<Plan> plan; ///< none: the core is priced
  bool any = false;         ///< for a bound of all plans of the core, of any batch
  bool ofTasks = false;     ///< the plan's tasks are priced
  bool callsTasks = false;  ///< the tasks of the plan's whole program are functions
  bool isDone = false;      ///< else nothing is known: the search is to end
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
  /// Jobs are done while `goesOn`, which all threads ask, says so.
  PlanWorkers(llvm::StringRef model, size_t threads, const CompileOptions &options, const MachineModel &machine,
              std::function<bool()> goesOn);
  ~PlanWorkers();

  /// Does all jobs. Plans are composed if the prices of cores are given, and else compiled whole.
  void run(llvm::MutableArrayRef<PlanJob *> jobs, const std::map<std::string, CorePrice> *cores);
  /// Calls `use` with each number below `count`, in all threads.
  void each(size_t count, llvm::function_ref<void(size_t)> use) {
    forEach(count, [&](size_t i, PlanWorker &) { use(i); });
  }
  /// The composer of the calling thread. The model's layers must be equal.
  Composer &composer();
  /// Compiles the whole model while `goesOn` says so; nothing if that ended or the plan is refused.
  std::optional<ProgramPrice> priceWhole(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal);
  /// Like priceWhole, but recomputes as little as `bytes` of a rank allow; the plan then says which layers do.
  std::optional<ProgramPrice> priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                         std::string &refusal);
  /// If there are several threads: begins to compile a plan whole in the background, because it will probably be asked
  /// for. Gives up such a compile of another plan.
  void beginWhole(const Plan &plan);
  /// Gives up a whole compile that was begun.
  void giveUp() {
    if (ahead)
      ahead->isWanted = false;
  }

  /// A plan, and whether the tasks of its whole program are functions.
  using AskedPlan = std::pair<const Plan *, bool>;
  /// Seconds of a step by each plan on each machine, composed from few layers if `composes`; empty if a plan is
  /// refused, or if the search is to end.
  std::vector<std::vector<double>> secondsOn(llvm::ArrayRef<MachineModel> machines, llvm::ArrayRef<AskedPlan> plans,
                                             bool composes);

private:
  /// Calls `use` with each number below `count`, by all threads.
  void forEach(size_t count, llvm::function_ref<void(size_t, PlanWorker &)> use);

  /// A whole compile that was begun.
  struct Ahead {
    std::string plan, refusal;
    std::atomic<bool> isWanted = true;
    std::future<std::optional<ProgramPrice>> price;
    ~Ahead() { isWanted = false; } // `price` then waits for its end
  };

  std::function<bool()> goesOn;
  std::function<std::unique_ptr<PlanWorker>()> makeWorker;
  std::vector<std::unique_ptr<PlanWorker>> workers;
  std::unique_ptr<PlanWorker> other; ///< of `ahead`
  std::unique_ptr<Ahead> ahead;
};

} // namespace pc

#endif
