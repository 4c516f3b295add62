//===- HostGuard.cpp - Host memory that work will write -------------------===//
// mprotect closes whole pages; the handler of SIGSEGV decides by the exact address whether an access is to be reported,
// is an access to other bytes, or is a fault of the program itself.
//===----------------------------------------------------------------------===//
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

/// The pages [begin, end).
struct Pages {
  uintptr_t begin, end;
  auto operator<=>(const Pages &) const = default;
  bool contains(uintptr_t at) const { return begin <= at && at < end; }
};

/// The memory [begin, end) of an unfinished item, and the pages that are guarded for it.
struct Guard {
  ItemRef item;
  uintptr_t begin, end;
  Pages pages;
};

/// All guards, and the signal handler that they replace.
struct Guards {
  std::vector<Guard> all;
  std::vector<Pages> opened; ///< Guarded pages that are accessible for the moment.
  std::set<Pages> ever;      ///< Pages that were guarded once.
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

static bool protect(Pages pages, bool open) {
  return mprotect(reinterpret_cast<void *>(pages.begin), pages.end - pages.begin,
                  open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

static void onFault(int signal, siginfo_t *info, void *context) {
  Lock lock(driverMutex());
  Guards &g = guards();
  auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  Pages one = {at / g.page * g.page, at / g.page * g.page + g.page};
  bool guarded = false;
  const Guard *hit = nullptr;
  for (const Guard &guard : g.all) {
    if (!guard.pages.contains(at))
      continue;
    guarded = true;
    if (guard.begin <= at && at < guard.end)
      hit = &guard;
  }
  // Another thread may have opened the page since; mprotect refuses one that no longer exists.
  if (!guarded && std::any_of(g.ever.begin(), g.ever.end(), [&](Pages pages) { return pages.contains(at); }) &&
      protect(one, true))
    return;
  if (!guarded) { // a fault that other code handles
    if (g.before.sa_flags & SA_SIGINFO && g.before.sa_sigaction)
      return g.before.sa_sigaction(signal, info, context);
    sigaction(signal, &g.before, nullptr);
    return;
  }
  if (hit && guardsOff == 0)
    report("order: the host uses " + describeMemory(reinterpret_cast<void *>(hit->begin), hit->end - hit->begin) +
           " without waiting for '" + hit->item->work->name + "', which writes there");
  g.opened.push_back(hit && guardsOff > 0 ? hit->pages : one); // a caller that may read usually reads all of it
  protect(g.opened.back(), true);
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
  Pages pages = {at / g.page * g.page, (at + bytes + g.page - 1) / g.page * g.page};
  g.all.push_back({item, at, at + bytes, pages});
  g.ever.insert(pages);
  protect(pages, false);
}

GuardsOff::GuardsOff() { ++guardsOff; }

GuardsOff::~GuardsOff() {
  Guards &g = guards();
  if (--guardsOff > 0)
    return;
  for (Pages opened : std::exchange(g.opened, {}))
    for (const Guard &guard : g.all)
      if (Pages both = {std::max(opened.begin, guard.pages.begin), std::min(opened.end, guard.pages.end)};
          both.begin < both.end)
        protect(both, false);
}

/// Opens the pages of `guard`, and closes again what other guards close.
static void open(const Guard &guard) {
  protect(guard.pages, true);
  guards().opened.push_back(guard.pages);
  GuardsOff again;
}

/// Whether what `guard` waits for is done before everything at `later`.
static bool isOver(const Guard &guard, const OrderClock &later) {
  const OrderClock &clock = guard.item->clock;
  return guard.item->done &&
         (clock.tick == 0 || (clock.chain < later.ticks.size() && later.ticks[clock.chain] >= clock.tick));
}

void pc::standin::openGuards(const OrderClock &clock) {
  for (const Guard &guard : guards().all)
    if (isOver(guard, clock) && protect(guard.pages, true))
      guards().opened.push_back(guard.pages);
}

void pc::standin::releaseGuards(const OrderClock &host) {
  Guards &g = guards();
  std::vector<Guard> over;
  std::erase_if(g.all, [&](const Guard &guard) {
    bool known = isOver(guard, host);
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
