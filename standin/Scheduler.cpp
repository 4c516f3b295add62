//===- Scheduler.cpp - Work on streams, in an adversarial order -----------===//
// step() runs or completes one ready item of any stream. If there is none, this process waits for other ranks, and
// after a while asks the deadlock probe (setDeadlockProbe) whether no rank can make progress. A host that only polls
// counts as one that waits.
//===----------------------------------------------------------------------===//
#include "standin/Scheduler.h"
#include "standin/HostGuard.h"
#include "standin/Memory.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <thread>

using namespace pc::standin;

namespace {

/// Mixes a 64-bit number well (the finalizer of splitmix64).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// All items that are not done. The random order depends only on the seed and the submissions.
struct Scheduler {
  uint64_t seed = options().seed;
  uint64_t drawn = 0, steps = 0, submitted = 0;
  std::vector<ItemRef> ready;                    ///< All predecessors are done.
  std::vector<ItemRef> flying;                   ///< Started; others complete them.
  std::vector<ItemRef> waiting;                  ///< Items that wait for predecessors, so that a reset can drop them.
  std::map<uint64_t, std::deque<Item *>> queues; ///< Items that are not done, in the order of submission.
  /// The work for which the host has waited; the items submitted since share it.
  std::shared_ptr<const OrderClock> host = std::make_shared<OrderClock>();
  /// For each waiting thread, the number of steps after which it last found that its wait is not over.
  std::vector<const uint64_t *> waiters;
  uint64_t resets = 0;
  /// The time since which a host has polled while nothing can run and it submits nothing; such a host also waits.
  double pollingSince = 0;
  int polls = 0;
  std::function<std::string(int)> deadlockProbe;
};

} // namespace

static thread_local bool runsItem = false;

/// The numbers of polls and seconds after which a host that polls streams counts as one that waits.
static constexpr int pollsThatWait = 20;
static constexpr double secondsThatWait = 0.5;

static Scheduler &scheduler() {
  static auto *scheduler = new Scheduler;
  return *scheduler;
}

uint64_t pc::standin::drawNumber() { return mix(scheduler().seed ^ mix(++scheduler().drawn)); }
uint64_t pc::standin::numResets() { return scheduler().resets; }
bool pc::standin::insideItem() { return runsItem; }

double pc::standin::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pc::standin::setDeadlockProbe(std::function<std::string(int)> probe) {
  scheduler().deadlockProbe = std::move(probe);
}

/// Ends the polling: the host does something else, or an item has run.
static void stopPolling() {
  Scheduler &s = scheduler();
  if (s.polls >= pollsThatWait && s.deadlockProbe)
    s.deadlockProbe(0);
  s.polls = 0;
}

void pc::standin::submit(const ItemRef &item) {
  Scheduler &s = scheduler();
  item->number = s.submitted++;
  stopPolling();
  item->host = s.host;
  if (item->work->prepare)
    item->work->prepare(*item);
  for (const ItemRef &before : item->after)
    if (!before->done) {
      before->next.push_back(item);
      ++item->waitingFor;
    }
  if (item->queue)
    s.queues[item->queue].push_back(item.get());
  if (item->waitingFor == 0)
    s.ready.push_back(item);
  else
    s.waiting.push_back(item);
}

/// Returns true if the item is the first in its queue.
static bool isNext(const Item &item) { return !item.queue || scheduler().queues[item.queue].front() == &item; }

/// Marks the item as done; its successors may become ready.
static void finish(const ItemRef &item) {
  Scheduler &s = scheduler();
  item->done = true;
  item->finished = seconds();
  item->flight = nullptr;
  if (item->queue)
    s.queues[item->queue].pop_front();
  std::vector<ItemRef> next = std::move(item->next);
  item->next.clear();
  for (const ItemRef &successor : next)
    if (--successor->waitingFor == 0) {
      s.ready.push_back(successor);
      std::erase(s.waiting, successor);
    }
}

static void fail(const Item &item, const std::string &error) {
  if (!error.empty())
    report(item.work->name + ": " + error);
}

static void setWrittenBy(const Work &work) {
  for (const Access &access : work.accesses)
    if (access.write)
      setWritten(access.begin, access.bytes);
}

/// Runs a ready item, or starts it.
static void run(const ItemRef &item) {
  Scheduler &s = scheduler();
  const Work &work = *item->work;
  item->clock = *item->host;
  for (const ItemRef &before : item->after)
    item->clock.join(before->clock);
  item->after.clear();
  placeInChain(item->clock);
  if (options().trace)
    fprintf(stderr, "pc_standin: %llu %s\n", static_cast<unsigned long long>(item->number), work.name.c_str());
  auto check = [&](const std::vector<Access> &accesses) {
    if (options().checkOrder)
      for (const Access &access : accesses)
        if (!isPolled(access.begin))
          checkAccess(item->clock, work.name, access);
  };
  check(work.accesses);
  GuardsOff mayLook;
  if ((work.run || work.start) && !work.fills)
    poisonFresh();
  if (item->check)
    fail(*item, item->check());
  runsItem = true;
  if (work.engine == Engine::Host)
    openGuards(item->clock);
  if (work.run) {
    std::vector<Access> found;
    fail(*item, work.run(found));
    check(found);
    setWrittenBy(work);
  } else if (work.start) {
    item->flight = work.start(*item);
  }
  runsItem = false;
  if (item->flight)
    s.flying.push_back(item);
  else
    finish(item);
}

/// Runs or completes one item; returns false if this process can make no progress.
static bool step() {
  Scheduler &s = scheduler();
  struct Candidate {
    Item *item;
    uint64_t rank;
  };
  uint64_t epoch = s.steps / 64;
  bool uniform = mix(s.seed ^ mix(epoch)) % 3 == 0;
  Item *best = nullptr;
  uint64_t bestRank = 0;
  auto consider = [&](const ItemRef &item) {
    uint64_t rank = s.seed == 0 ? ~item->number : uniform ? drawNumber() : mix(s.seed ^ mix(epoch ^ mix(item->lane)));
    if (!best || rank > bestRank)
      best = item.get(), bestRank = rank;
  };
  for (const ItemRef &item : s.flying)
    if (item->flight->isDone())
      consider(item);
  for (const ItemRef &item : s.ready)
    if (isNext(*item) && (!item->work->mayStart || item->work->mayStart(*item)))
      consider(item);
  if (!best)
    return false;
  ++s.steps;
  auto isBest = [&](const ItemRef &item) { return item.get() == best; };
  if (auto it = std::find_if(s.ready.begin(), s.ready.end(), isBest); it != s.ready.end()) {
    ItemRef item = *it;
    s.ready.erase(it);
    run(item);
  } else {
    it = std::find_if(s.flying.begin(), s.flying.end(), isBest);
    ItemRef item = *it;
    s.flying.erase(it);
    GuardsOff mayLook;
    fail(*item, item->flight->finish());
    setWrittenBy(*item->work);
    finish(item);
  }
  return true;
}

/// Notes that the host knows that `item`, and everything before it, is done.
static void noticeDone(const Item &item) {
  Scheduler &s = scheduler();
  const OrderClock &clock = item.clock;
  if (clock.tick == 0 || (clock.chain < s.host->ticks.size() && s.host->ticks[clock.chain] >= clock.tick))
    return;
  auto joined = std::make_shared<OrderClock>(*s.host);
  joined->join(clock);
  s.host = std::move(joined);
  releaseGuards(*s.host);
}

bool pc::standin::areDone(const std::vector<ItemRef> &items) {
  for (const ItemRef &item : items)
    if (!item->done)
      return false;
  for (const ItemRef &item : items)
    noticeDone(*item);
  return true;
}

/// The number of threads whose wait is not over after the last step.
static int waitingThreads() {
  Scheduler &s = scheduler();
  return static_cast<int>(
      std::count_if(s.waiters.begin(), s.waiters.end(), [&](const uint64_t *seen) { return *seen == s.steps; }));
}

/// Waits a moment for other ranks; reports a deadlock if there is one.
static void waitForOthers(Lock &lock, double since) {
  Scheduler &s = scheduler();
  std::string what = s.flying.empty() ? "some work is ready but might never start" : "";
  if (s.flying.empty()) {
    for (const ItemRef &item : s.ready)
      what += "; " + item->work->name;
  } else if (s.deadlockProbe) {
    what = s.deadlockProbe(waitingThreads());
  }
  double limit = options().timeoutSeconds;
  if (what.empty() && limit > 0 && seconds() - since > limit)
    what = "there was no progress within PC_STANDIN_TIMEOUT";
  if (!what.empty()) {
    report("deadlock: " + what);
    return;
  }
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  lock.lock();
}

/// Runs until `isOver`.
template <typename Condition> static CUresult runUntil(Lock &lock, Condition isOver) {
  Scheduler &s = scheduler();
  double idleSince = 0;
  uint64_t seen = 0;
  bool waits = false;
  auto stopWaiting = [&] {
    if (!waits)
      return;
    std::erase(s.waiters, &seen);
    waits = false;
    if (s.deadlockProbe)
      s.deadlockProbe(0);
  };
  while (!isOver() && stickyError() == CUDA_SUCCESS) {
    seen = s.steps;
    if (step()) {
      stopWaiting();
      continue;
    }
    if (!waits) {
      s.waiters.push_back(&seen);
      waits = true;
      idleSince = seconds();
    }
    size_t reports = pc_standin_reports();
    waitForOthers(lock, idleSince);
    if (options().keepGoing && pc_standin_reports() > static_cast<int>(reports))
      break; // a deadlock: no thread can continue
  }
  stopWaiting();
  return stickyError();
}

CUresult pc::standin::waitFor(Lock &lock, const std::vector<ItemRef> &items) {
  CUresult result = runUntil(lock, [&] { return areDone(items); });
  if (scheduler().seed != 0)
    letTimePass();
  return result;
}

CUresult pc::standin::waitForAll(Lock &lock) {
  Scheduler &s = scheduler();
  std::vector<ItemRef> all = s.ready;
  all.insert(all.end(), s.waiting.begin(), s.waiting.end());
  all.insert(all.end(), s.flying.begin(), s.flying.end());
  return runUntil(lock, [&] { return areDone(all); });
}

void pc::standin::letTimePass(bool forOthers) {
  Scheduler &s = scheduler();
  if (stickyError() != CUDA_SUCCESS)
    return;
  uint64_t count = s.seed == 0 ? 1 : drawNumber() % 4;
  while (count-- > 0) {
    if (step()) {
      stopPolling();
      continue;
    }
    if (s.flying.empty() && !forOthers)
      return;
    if (s.polls++ == 0)
      s.pollingSince = seconds();
    if (s.polls < pollsThatWait || seconds() - s.pollingSince < secondsThatWait || !s.deadlockProbe)
      return;
    if (std::string what = s.deadlockProbe(waitingThreads() + 1); !what.empty())
      report("deadlock: " + what);
    return;
  }
}

void pc::standin::resetScheduler(uint64_t seed) {
  Scheduler &s = scheduler();
  for (auto *list : {&s.ready, &s.waiting, &s.flying}) {
    for (const ItemRef &item : *list) {
      item->after.clear();
      item->next.clear();
      item->flight = nullptr;
      item->done = true;
    }
    list->clear();
  }
  s.queues.clear();
  dropGuards();
  s.seed = seed;
  ++s.resets;
  s.drawn = s.steps = 0;
}
