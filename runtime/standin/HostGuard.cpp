//===- HostGuard.cpp - host memory that work will write -------------------===//
#include "standin/HostGuard.h"
#include "standin/Memory.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace pc::standin;

namespace {

struct Guard {
  ItemRef item;
  uintptr_t begin, end;
};

struct Guards {
  std::vector<Guard> all;
  std::set<uintptr_t> opened; ///< Guarded pages that are accessible for the moment.
  std::set<uintptr_t> closed; ///< Pages that were ever guarded.
  bool installed = false;
  struct sigaction before;
  uintptr_t page = sysconf(_SC_PAGESIZE);
};

} // namespace

static thread_local int guardsOff = 0;

static Guards &guards() {
  static auto *guards = new Guards;
  return *guards;
}

static bool protect(uintptr_t page, bool open) {
  return mprotect(reinterpret_cast<void *>(page), guards().page, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

/// Calls body(page) for each page of a guard.
template <typename Body> static void forPages(const Guard &guard, Body body) {
  uintptr_t size = guards().page;
  for (uintptr_t page = guard.begin / size * size; page < guard.end; page += size)
    body(page);
}

static void onFault(int signal, siginfo_t *info, void *context) {
  Lock lock(driverMutex());
  Guards &g = guards();
  auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  uintptr_t page = at / g.page * g.page;
  bool guarded = false;
  const Guard *hit = nullptr;
  for (const Guard &guard : g.all) {
    guarded |= guard.begin < page + g.page && page < guard.end;
    if (guard.begin <= at && at < guard.end)
      hit = &guard;
  }
  // Another thread may have opened the page since; mprotect refuses one that is not there any more.
  if (!guarded && g.closed.count(page) && protect(page, true))
    return;
  if (!guarded) { // somebody else's
    if (g.before.sa_flags & SA_SIGINFO && g.before.sa_sigaction)
      return g.before.sa_sigaction(signal, info, context);
    sigaction(signal, &g.before, nullptr);
    return;
  }
  if (hit && guardsOff == 0)
    report("order: the host uses " + describeMemory(reinterpret_cast<void *>(hit->begin), hit->end - hit->begin) +
           " without having waited for '" + hit->item->work->name + "', which writes there");
  protect(page, true);
  g.opened.insert(page);
}

void pc::standin::guardHostMemory(const ItemRef &item, const void *begin, int64_t bytes) {
  Guards &g = guards();
  if (!g.installed) {
    struct sigaction action = {};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &g.before);
    g.installed = true;
  }
  auto at = reinterpret_cast<uintptr_t>(begin);
  g.all.push_back({item, at, at + bytes});
  forPages(g.all.back(), [&](uintptr_t page) {
    g.opened.erase(page);
    g.closed.insert(page);
    protect(page, false);
  });
}

GuardsOff::GuardsOff() { ++guardsOff; }

GuardsOff::~GuardsOff() {
  Guards &g = guards();
  if (--guardsOff > 0)
    return;
  for (uintptr_t page : std::exchange(g.opened, {}))
    for (const Guard &guard : g.all)
      if (guard.begin < page + g.page && page < guard.end)
        protect(page, false);
}

/// Opens the pages of `guard` that no other guard closes.
static void open(const Guard &guard) {
  forPages(guard, [&](uintptr_t page) {
    Guards &g = guards();
    bool closed = std::any_of(g.all.begin(), g.all.end(),
                              [&](const Guard &other) { return other.begin < page + g.page && page < other.end; });
    if (closed)
      return;
    g.opened.erase(page);
    protect(page, true);
  });
}

void pc::standin::releaseGuards(const OrderClock &host) {
  Guards &g = guards();
  std::vector<Guard> over;
  std::erase_if(g.all, [&](const Guard &guard) {
    const OrderClock &clock = guard.item->clock;
    bool known = guard.item->done &&
                 (clock.tick == 0 || (clock.chain < host.ticks.size() && host.ticks[clock.chain] >= clock.tick));
    if (known)
      over.push_back(guard);
    return known;
  });
  for (const Guard &guard : over)
    open(guard);
}

void pc::standin::dropGuards() {
  std::vector<Guard> over = std::exchange(guards().all, {});
  for (const Guard &guard : over)
    open(guard);
}
