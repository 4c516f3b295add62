//===- Scheduler.h - Work on streams, in an adversarial order -------------===//
// An item is one piece of work with the items that it comes after. Nothing runs until somebody waits or asks; then an
// adversary picks, by the seed, any item whose predecessors are done: uniformly, or by priorities of streams that it
// draws anew now and then (only so does a missing wait after a long stream show).
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

/// Work that started and ends when other ranks have done their part.
struct Flight {
  virtual ~Flight() = default;
  virtual bool isDone() = 0;
  /// Called once, when done: carries out this rank's part. Returns an error or nothing.
  virtual std::string finish() = 0;
};

struct Item;

/// What runs an item. Copies of a direction have one engine, whose queue all streams share.
enum class Engine : uint8_t { Compute, Host, ToHost, ToDevice, OnDevice };

/// What an item does; a node of a graph shares it with all of its launches.
struct Work {
  std::string name;
  std::vector<Access> accesses;
  /// Does the work. May add accesses that it found out. Returns an error or nothing. Null: no work.
  std::function<std::string(std::vector<Access> &found)> run;
  /// Instead of `run`: begins work that others complete, where `mayStart` allows.
  std::function<std::shared_ptr<Flight>(const Item &)> start;
  std::function<bool(const Item &)> mayStart;
  /// Called when an item of this work is submitted; may set its `check` and `ticket`.
  std::function<void(Item &)> prepare;
  bool fills = false;   ///< It takes fresh memory (Memory.h) by itself.
  bool inOrder = false; ///< It begins after whatever else of this kind its device was given before, also in a graph.
  Engine engine = Engine::Compute;

  /// Whether CUDA runs it as a kernel, which alone has a priority: neither a copy, a memset, nor a host function.
  bool isKernel() const { return (run || start) && !fills && engine == Engine::Compute; }
};

using ItemRef = std::shared_ptr<Item>;

struct Item : std::enable_shared_from_this<Item> {
  std::shared_ptr<const Work> work;
  std::vector<ItemRef> after; ///< Predecessors; emptied when the item has run.
  uint64_t lane = 0;          ///< Items of a lane share a priority: a stream, or a branch of a graph.
  uint64_t queue = 0; ///< The hardware's: an item starts when all are done that were submitted to it before. 0: none.
  int priority = 0;   ///< Of its stream.
  bool done = false;
  double finished = 0; ///< Seconds on the host's clock.
  OrderClock clock;    ///< What happened before it; set when it starts.

  uint64_t number = 0; ///< Order of submission.
  int waitingFor = 0;  ///< Predecessors that are not done.
  std::vector<ItemRef> next;
  std::shared_ptr<const OrderClock> host; ///< What the host had waited for at submission.
  std::shared_ptr<Flight> flight;
  std::function<std::string()> check; ///< Called before the item runs, for an error.
  uint64_t ticket = 0;                ///< For Work::mayStart and Work::start.
};

/// Adds the work to the program; its predecessors are set.
void submit(const ItemRef &item);

/// Runs items until all of `items` are done, and perhaps some more. Releases the lock while only other ranks can go on.
/// Returns the sticky error.
CUresult waitFor(Lock &lock, const std::vector<ItemRef> &items);

/// Runs everything that was submitted.
CUresult waitForAll(Lock &lock);

/// Runs a few items, as time passes between two questions of the host.
void letTimePass();

/// Whether all of `items` are done; if so the host knows.
bool areDone(const std::vector<ItemRef> &items);

/// Called while all that this process could do waits for others, with the number of its threads that wait (0: a thread
/// goes on): a report if nobody can go on, else nothing.
void setDeadlockProbe(std::function<std::string(int waitingThreads)> probe);

/// Forgets all items; priorities follow the new seed.
void resetScheduler(uint64_t seed);

/// How often all items were forgotten.
uint64_t numResets();

/// A random number of the current seed.
uint64_t drawNumber();

/// Whether an item runs on this thread: closures and host functions must not call the driver.
bool insideItem();

/// Seconds on a clock that only goes forward.
double seconds();

} // namespace pc::standin

#endif // PC_STANDIN_SCHEDULER_H
