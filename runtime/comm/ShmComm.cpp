//===- ShmComm.cpp - Ranks of one machine, zero copy ----------------------===//
// This file has joining, memory, waiting and failures; ShmMoves.cpp has the moves, and ShmFlows.cpp has the flows. A
// wait spins briefly, then yields, then sleeps 0.1 ms at a time. A rank that has waited for a second publishes for whom
// it waits, and ranks follow these links to find circles. A circle is reported if it is found twice without progress in
// between.
//===----------------------------------------------------------------------===//
#include "comm/ShmComm.h"
#include "comm/Environment.h"
#include "comm/HostArena.h"
#include "comm/Moves.h"
#include "comm/Patience.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace pcrt;

/// The flag that exit() sets, so that a program which ends without destroying its Comm does not count as dead.
static std::atomic<std::atomic<int32_t> *> leftFlagAtExit{nullptr};

static void markLeftAtExit() {
  if (std::atomic<int32_t> *left = leftFlagAtExit.exchange(nullptr))
    left->store(1);
}

//===----------------------------------------------------------------------===//
// Joining and leaving
//===----------------------------------------------------------------------===//

ShmComm::ShmComm(int fd, ControlBlock &control, int rank, bool launched)
    : Comm(rank, control.size), fd(fd), control(control), launched(launched), timeout(timeoutSeconds()),
      queues(kMaxGroups), arenas(control.size), scratches(control.size), flowMaps(control.size), ins(control.size),
      outs(control.size) {}

pcrt_status ShmComm::join(int fd, int rank, bool launched, std::unique_ptr<Comm> *out, std::string *error) {
  ControlBlock *control = mapControl(fd, error);
  if (!control)
    return PCRT_RESOURCE;
  if (rank < 0 || rank >= control->size) {
    *error = rankName(rank) + " does not exist, because the run has " + std::to_string(control->size) + " ranks";
    return PCRT_USAGE;
  }
  int32_t nobody = 0;
  if (!control->rank(rank).pid.compare_exchange_strong(nobody, getpid())) {
    *error = rankName(rank) + " is already process " + std::to_string(nobody);
    return PCRT_USAGE;
  }
  std::unique_ptr<ShmComm> comm(new ShmComm(fd, *control, rank, launched));
  leftFlagAtExit.store(&control->rank(rank).left);
  static int registered = atexit(markLeftAtExit);
  (void)registered;
  // A rank that never joins is named by the timeout of this first wait.
  pcrt_status status = comm->barrier();
  if (status != PCRT_OK) {
    *error = comm->error();
    return status;
  }
  comm->watcher = std::make_unique<ShmWatcher>(*control, rank, launched);
  *out = std::move(comm);
  return PCRT_OK;
}

ShmComm::~ShmComm() {
  watcher.reset();
  leftFlagAtExit.store(nullptr);
  control.rank(rank()).left.store(1);
  for (const std::vector<Mapping> *mappings : {&arenas, &scratches, &flowMaps})
    for (const Mapping &mapping : *mappings)
      if (mapping.base)
        munmap(mapping.base, mapping.bytes);
  unmapControl(&control);
  close(fd);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

bool ShmComm::map(Mapping &mapping, int64_t offset, int64_t bytes) {
  if (mapping.bytes >= bytes)
    return true;
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (bytes > kWindowHalf)
    return false;
  // Reserves more address space than needed, maps the aligned part, and releases the rest.
  void *reserved = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return false;
  char *start = static_cast<char *>(reserved);
  int64_t before = -reinterpret_cast<uintptr_t>(start) & (kHugePage - 1);
  char *base = start + before;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, offset) == MAP_FAILED) {
    munmap(reserved, bytes + kHugePage);
    return false;
  }
  if (before)
    munmap(start, before);
  munmap(base + bytes, kHugePage - before);
  if (mapping.base)
    munmap(mapping.base, mapping.bytes);
  mapping = {base, bytes};
  return true;
}

/// Gives untouched shared memory huge pages, if the kernel can (Linux 6.1). On most machines shared memory gets none by
/// default. One small page of each huge page must exist first. This takes half the time of touching all small pages.
static void takeHugePages(char *base, int64_t bytes) {
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;
#endif
  for (int64_t at = 0; at + kHugePage <= bytes; at += kHugePage)
    *static_cast<volatile char *>(base + at) = 0;
  madvise(base, bytes / kHugePage * kHugePage, MADV_COLLAPSE);
}

pcrt_status ShmComm::allocateArena(int64_t bytes, char **base) {
  Mapping &own = arenas[rank()];
  if (own.base || bytes < 0)
    return giveUp(PCRT_INTERNAL, own.base ? "the arena was allocated twice" : "negative arena size");
  control.rank(rank()).arena.store(bytes);
  PCRT_TRY(barrier());
  std::string problem;
  PCRT_TRY(checkArenas(bytes, &problem));
  if (!problem.empty())
    return giveUp(PCRT_RESOURCE, problem);
  if (!map(own, arenaOffset(rank()), bytes > 0 ? bytes : 1))
    return giveUp(PCRT_RESOURCE, "cannot map an arena of " + std::to_string(bytes) + " bytes: " + strerror(errno));
  if (!control.oldArenas)
    takeHugePages(own.base, bytes);
  *base = own.base;
  return PCRT_OK;
}

bool ShmComm::inArena(const void *at, int64_t bytes) const {
  const Mapping &own = arenas[rank()];
  auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(own.base);
  return own.base && offset <= uintptr_t(own.bytes) && uintptr_t(bytes) <= own.bytes - offset;
}

char *ShmComm::ownScratch(int64_t bytes) {
  Mapping &own = scratches[rank()];
  if (!map(own, scratchOffset(rank()), bytes))
    return nullptr;
  control.rank(rank()).scratch.store(own.bytes);
  return own.base;
}

void ShmComm::releaseScratch() {
  constexpr int64_t kept = 2 << 20;
  const Mapping &own = scratches[rank()];
  if (own.bytes > kept)
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, scratchOffset(rank()) + kept, own.bytes - kept);
}

char *ShmComm::peerPointer(int peer, int64_t offset) {
  bool flow = offset >= flowsOffset(peer), scratch = !flow && offset >= scratchOffset(peer);
  RankBlock &block = control.rank(peer);
  Mapping &mapping = (flow ? flowMaps : scratch ? scratches : arenas)[peer];
  int64_t start = flow ? flowsOffset(peer) : scratch ? scratchOffset(peer) : arenaOffset(peer);
  int64_t bytes = (flow ? block.flows : scratch ? block.scratch : block.arena).load();
  if (peer != rank() && !map(mapping, start, bytes))
    return nullptr;
  return mapping.base + (offset - start);
}

int64_t ShmComm::peerResidentBytes() const {
  FILE *file = fopen("/proc/self/smaps", "re");
  if (!file)
    return 0;
  int64_t total = 0;
  bool peers = false;
  char line[4096];
  while (fgets(line, sizeof line, file)) {
    unsigned long from, to, offset;
    long kib;
    char mode[8];
    if (sscanf(line, "%lx-%lx %7s %lx", &from, &to, mode, &offset) == 4) {
      int owner = rankOfOffset(int64_t(offset));
      peers = strstr(line, "/memfd:pcrt") && owner >= 0 && owner != rank();
    } else if (peers && sscanf(line, "Rss: %ld kB", &kib) == 1) {
      total += kib * 1024;
    }
  }
  fclose(file);
  return total;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

bool ShmComm::reached(const Group &group, Goal goal) {
  for (int peer : group.ranks)
    if (!slot(peer, group.id).reached(goal))
      return false;
  return true;
}

static int64_t nanosecondsAt(double seconds) { return int64_t(seconds * 1e9); }

/// The number of spins before a wait yields: ranks that share a core spin less.
static int spinsOf(int ranks) {
  static const int cores = int(sysconf(_SC_NPROCESSORS_ONLN));
  return ranks <= cores ? 2000 : 20;
}

pcrt_status ShmComm::waitForMembers(const Group &group, Goal goal) {
  const int spins = spinsOf(size());
  for (int peer : group.ranks) {
    const Slot &theirs = slot(peer, group.id);
    int spin = 0;
    while (!theirs.reached(goal) && ++spin < spins)
      __builtin_ia32_pause();
    if (spin == spins)
      PCRT_TRY(waitSlowly({peer, goal, &group}));
  }
  return PCRT_OK;
}

pcrt_status ShmComm::waitAt(const FlowHeader &header, const Wait &wait) {
  const int spins = spinsOf(size());
  for (int spin = 0; spin < spins; ++spin) {
    if (header.reached(wait.goal))
      return PCRT_OK;
    __builtin_ia32_pause();
  }
  return waitSlowly(wait);
}

bool ShmComm::reached(const Wait &wait) {
  return wait.group ? slot(wait.peer, wait.group->id).reached(wait.goal) : flowAt(wait.flow).reached(wait.goal);
}

pcrt_status ShmComm::waitSlowly(const Wait &wait) {
  const int peer = wait.peer;
  RankBlock &me = control.rank(rank());
  double start = monotonicSeconds(), lost = 0, circle = 0;
  Patience patience(timeout);
  uint64_t circleWaits = 0;
  pcrt_status status = PCRT_OK;
  while (!reached(wait)) {
    double now = monotonicSeconds(), waited = now - start;
    bool isLate = patience.isOver(now);
    if (waited < 0.02) {
      sched_yield();
    } else {
      usleep(100);
    }
    // Others may wait for this rank's share of moves that are in flight.
    status = advanceAll(workers, wait.group ? wait.group->id : -1);
    if (status != PCRT_OK)
      break;
    if (control.failed()) {
      if (!reached(wait))
        status = peerLost(doing(rank(), wait));
      break;
    }
    // A peer that has ended may have arrived here before. If not, the launcher gets time to report first, because it
    // knows how the peer ended.
    if (control.rank(peer).left.load() && !reached(wait)) {
      lost = lost ? lost : waited + (launched ? 0.2 : 0);
      if (waited >= lost) {
        giveUp(PCRT_PEER_LOST, rankName(peer) + " ended before joining " + doing(rank(), wait));
        status = PCRT_PEER_LOST;
        break;
      }
    }
    if (isLate && !reached(wait) && !patience.isExtended(secondsSinceBusy())) {
      status = timedOut(wait);
      if (status == PCRT_OK)
        continue;
      break;
    }
    if (waited > 1 && !me.waitsFor.load()) {
      if (me.busy.load())
        me.lastBusy.store(nanosecondsAt(now));
      me.waits.fetch_add(1);
      me.waitGroup.store(wait.group ? wait.group->id : 0);
      me.waitFlow.store(wait.flow);
      me.waitGoal.store(wait.goal.encode());
      me.waitsFor.store(peer + 1);
    }
    // Ranks that wait in a circle wait forever. The check is made twice, because a single pass may combine states of
    // different moments.
    if (waited > 1 && waited > circle) {
      bool inCircle = waitsInCircle();
      uint64_t waits = 0;
      for (int i = 0; i < size(); ++i)
        waits += control.rank(i).waits.load();
      if (inCircle && circle && waits == circleWaits) {
        std::string text;
        waitsInCircle(&text);
        status = giveUp(PCRT_INTERNAL, "deadlock: " + text + "; the ranks run their collectives in different orders");
        break;
      }
      circleWaits = inCircle ? waits : ~uint64_t(0);
      circle = waited + 0.3;
    }
  }
  me.waitsFor.store(0);
  return status;
}

void ShmComm::setBusy(bool busy) {
  RankBlock &me = control.rank(rank());
  me.lastBusy.store(nanosecondsAt(monotonicSeconds()));
  me.busy.store(busy);
}

double ShmComm::secondsSinceBusy() {
  int64_t now = nanosecondsAt(monotonicSeconds()), last = 0;
  for (int peer = 0; peer < size(); ++peer) {
    RankBlock &block = control.rank(peer);
    bool busy = block.busy.load() && !block.waitsFor.load() && !block.left.load();
    last = std::max(last, busy ? block.heartbeat.load() : block.lastBusy.load());
  }
  return last ? 1e-9 * double(now - last) : neverBusy;
}

ShmComm::Wait ShmComm::waitOf(int rank) {
  RankBlock &block = control.rank(rank);
  Wait wait{block.waitsFor.load() - 1, Goal::decode(block.waitGoal.load())};
  wait.flow = block.waitFlow.load();
  if (!wait.flow) {
    // Only the number of the group is known here.
    numbered.id = block.waitGroup.load();
    wait.group = &numbered;
  }
  return wait;
}

bool ShmComm::waitsInCircle(std::string *text) {
  int at = rank();
  for (int steps = 0; steps < size(); ++steps) {
    Wait wait = waitOf(at);
    if (wait.peer < 0 || reached(wait))
      return false;
    if (text)
      *text += (steps ? ", " : "") + rankName(at) + " waits for " + rankName(wait.peer) + " in " + doing(at, wait);
    at = wait.peer;
    if (at == rank())
      return true;
  }
  return false;
}

pcrt_status ShmComm::compareKeys(const Group &group, uint64_t move) {
  const MoveKey &key = slot(rank(), group.id).move(move).key;
  for (int peer : group.ranks) {
    const MoveKey &theirs = slot(peer, group.id).move(move).key;
    if (memcmp(&theirs, &key, sizeof key) == 0)
      continue;
    return giveUp(PCRT_INTERNAL, "ranks run different collectives as number " + std::to_string(move) + " of " +
                                     groupName(group) + ": " + describeMismatch(rank(), key, peer, theirs));
  }
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

std::string ShmComm::doing(int rank, const Wait &wait) {
  if (!wait.group) {
    const FlowHeader &header = flowAt(wait.flow);
    // A source waits until the message that has its slot was received.
    uint64_t number = wait.goal.move + (wait.goal.done ? header.slots : 0);
    Flow flow;
    flow.name = header.name;
    flow.messages = header.messages;
    return (wait.goal.done ? "send of " : "receive of ") + flow.describe(number);
  }
  std::string text = describeKey(slot(rank, wait.group->id).move(wait.goal.move).key);
  return text.empty() ? "its first move" : text;
}

void ShmComm::note(const char *doing) {
  char *to = control.rank(rank()).doing;
  strncpy(to, doing, sizeof RankBlock::doing - 1);
}

pcrt_status ShmComm::giveUp(pcrt_status status, const std::string &message) {
  if (watcher)
    watcher->setReported(status);
  control.recordFailure(rank(), status, rankName(rank()) + " stopped: " + message);
  return fail(status, rankName(rank()) + ": " + message);
}

pcrt_status ShmComm::peerLost(const std::string &doing) {
  if (watcher)
    watcher->setReported(PCRT_PEER_LOST);
  return fail(PCRT_PEER_LOST,
              rankName(rank()) + ": in " + doing + ": " + control.failure.message + "; the run has ended");
}

pcrt_status ShmComm::timedOut(const Wait &wait) {
  std::string missing;
  for (int peer : wait.group ? wait.group->ranks : std::vector<int>{wait.peer}) {
    if (reached({peer, wait.goal, wait.group, wait.flow}))
      continue;
    missing += (missing.empty() ? "" : ", ") + rankName(peer);
    RankBlock &block = control.rank(peer);
    Wait theirs = waitOf(peer);
    if (!block.pid.load())
      missing += " (never started)";
    else if (theirs.peer >= 0)
      missing += " (waiting for " + rankName(theirs.peer) + " in " + doing(peer, theirs) + ")";
    else if (block.doing[0])
      missing += " (in " + std::string(block.doing) + ")";
  }
  if (missing.empty()) // all have arrived in the meantime
    return PCRT_OK;
  return giveUp(PCRT_TIMEOUT, "no answer within " + secondsText(timeout) + " s from " + missing + " in " +
                                  doing(rank(), wait) + (wait.group ? " of " + groupName(*wait.group) : "") +
                                  "; check whether it is stopped or much slower, or raise PCRT_TIMEOUT_SECONDS");
}

void ShmComm::abort(pcrt_status status, const char *message) {
  if (watcher)
    watcher->setReported(status);
  control.recordFailure(rank(), status, rankName(rank()) + " failed: " + message);
}
