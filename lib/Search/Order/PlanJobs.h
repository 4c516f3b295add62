//===- PlanJobs.h - What a search compiles, by several threads -----------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANJOBS_H
#define PC_LIB_SEARCH_ORDER_PLANJOBS_H

#include "../Price/ComposePlan.h"
#include <atomic>
#include <functional>
#include <future>

namespace pc {

/// A program, or two, that a thread compiles.
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

/// Threads with a copy of the model each.
class PlanWorkers {
public:
  /// Jobs are done while `goesOn`, which all threads ask, says so.
  PlanWorkers(llvm::StringRef model, size_t threads, const CompileOptions &options, const MachineModel &machine,
              std::function<bool()> goesOn);
  ~PlanWorkers();

  /// Does all jobs. Plans are compiled whole, or composed where the prices of their cores are given.
  void run(llvm::MutableArrayRef<PlanJob *> jobs, const std::map<std::string, CorePrice> *cores);
  /// Calls `use` with each number below `count`, in all threads.
  void each(size_t count, llvm::function_ref<void(size_t)> use) {
    forEach(count, [&](size_t i, PlanWorker &) { use(i); });
  }
  /// Only of models whose layers are alike.
  Composer &composer();
  /// By a compile of the whole model, while `goesOn` says so; nothing if it ended or the plan is refused.
  std::optional<ProgramPrice> priceWhole(const Plan &plan, llvm::function_ref<bool()> goesOn, std::string &refusal);
  /// Like priceWhole, but recomputes as little as `bytes` of a rank allow; the plan then says which layers do.
  std::optional<ProgramPrice> priceMixed(Plan &plan, int64_t bytes, llvm::function_ref<bool()> goesOn,
                                         std::string &refusal);
  /// Where there are several threads: begins a whole compile beside all else, of a plan that is likely to be asked for.
  /// One of another plan is given up.
  void beginWhole(const Plan &plan);
  /// Gives up a whole compile that was begun.
  void giveUp() {
    if (ahead)
      ahead->isWanted = false;
  }

  /// A plan, and whether the tasks of its whole program are functions.
  using AskedPlan = std::pair<const Plan *, bool>;
  /// Seconds of a step by each plan on each machine, put together from few layers where `composes`; empty where a plan
  /// is refused, or the search is to end.
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
