//===- Scheduler.h - Work on streams, in an adversarial order -------------===//
// An item is one piece of work with its predecessors. Nothing runs until the host waits or asks. Then an adversary
// picks, by the seed, any item whose predecessors are done. It picks uniformly, or by priorities of streams that it
// redraws at times (only priorities reveal a missing wait after a long stream).
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_SCHEDULER_H
#define PC_STANDIN_SCHEDULER_H

#include "standin/Options.h"
#include "standin/Order.h"
#include "standin/standin.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pc::standin {

using Access = pc_standin_access;

/// Work that has started and ends when other ranks have done their part.
struct Flight {
  virtual ~Flight() = default;
  virtual bool isDone() = 0;
  /// Carries out this rank's part. Called once, when isDone(). Returns an error or an empty string.
  virtual std::string finish() = 0;
};

struct Item;

/// The engine that runs an item. Copies of one direction have one engine, whose queue all streams share.
enum class Engine : uint8_t { Compute, Host, ToHost, ToDevice, OnDevice };

/// The work of an item; a node of a graph shares it with all of its launches.
struct Work {
  std::string name;
  std::vector<Access> accesses;
  /// Does the work, and may add accesses that it has found. Returns an error or an empty string. Null: there is no
  /// work.
  std::function<std::string(std::vector<Access> &found)> run;
  /// Called instead of `run` for work that other ranks complete: begins it, if `mayStart` allows it.
  std::function<std::shared_ptr<Flight>(const Item &)> start;
  std::function<bool(const Item &)> mayStart;
  /// Called when an item of this work is submitted; may set its `check` and `ticket`.
  std::function<void(Item &)> prepare;
  bool fills = false;   ///< Whether the work handles fresh memory (Memory.h) by itself.
  bool inOrder = false; ///< Whether it begins after all earlier work of this kind on its device, also in a graph.
  Engine engine = Engine::Compute;

  /// Whether CUDA runs it as a kernel. Only kernels have a priority: copies, memsets and host functions have none.
  bool isKernel() const { return (run || start) && !fills && engine == Engine::Compute; }
};

using ItemRef = std::shared_ptr<Item>;

/// A piece of work in the program, guarded by the driver's lock.
struct Item : std::enable_shared_from_this<Item> {
  std::shared_ptr<const Work> work;
  std::vector<ItemRef> after; ///< Predecessors; emptied when the item has run.
  uint64_t lane = 0;          ///< Items of a lane share a priority: a stream, or a branch of a graph.
  uint64_t queue = 0;         ///< The hardware queue: an item starts after all earlier ones in it are done. 0: none.
  int priority = 0;           ///< The priority of its stream.
  bool done = false;
  double finished = 0; ///< Seconds on the host's clock.
  OrderClock clock;    ///< The items that happened before it; set when it starts.

  uint64_t number = 0; ///< Order of submission.
  int waitingFor = 0;  ///< Predecessors that are not done.
  std::vector<ItemRef> next;
  std::shared_ptr<const OrderClock> host; ///< The work for which the host had waited at submission.
  std::shared_ptr<Flight> flight;
  std::function<std::string()> check; ///< Called before the item runs, for an error.
  uint64_t ticket = 0;                ///< For Work::mayStart and Work::start.
};

/// Adds the item, whose predecessors are set, to the program.
void submit(const ItemRef &item);

/// Runs items until all of `items` are done, and perhaps some more. Releases the lock while only other ranks can make
/// progress. Returns the sticky error.
CUresult waitFor(Lock &lock, const std::vector<ItemRef> &items);

/// Runs everything that was submitted.
CUresult waitForAll(Lock &lock);

/// Runs a few items, to simulate time between two queries of the host. `forOthers`: the host waits for other ranks, and
/// not only for its own work.
void letTimePass(bool forOthers = false);

/// Whether all of `items` are done; if so, the host counts as having waited for them.
bool areDone(const std::vector<ItemRef> &items);

/// Sets the function that is called while all work of this process waits for other ranks. It gets the number of waiting
/// threads (0: a thread still runs) and returns a report if no rank can make progress, otherwise an empty string.
void setDeadlockProbe(std::function<std::string(int waitingThreads)> probe);

/// Forgets all items; priorities follow the new seed.
void resetScheduler(uint64_t seed);

/// The number of resets.
uint64_t numResets();

/// A random number of the current seed.
uint64_t drawNumber();

/// Whether an item runs on this thread: closures and host functions must not call the driver.
bool insideItem();

/// The seconds of a monotonic clock.
double seconds();

} // namespace pc::standin

#endif // PC_STANDIN_SCHEDULER_H
