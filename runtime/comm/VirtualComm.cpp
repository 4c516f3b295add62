//===- VirtualComm.cpp - The ranks of a run as threads of one process -----===//
// A rank that waits looks at the state of all ranks under the lock: if all of them wait for something that has not
// happened, they are deadlocked, and the message names each wait.
//===----------------------------------------------------------------------===//
#include "comm/VirtualComm.h"
#include "base/Printing.h"
#include "comm/Environment.h"
#include "comm/Moves.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <thread>
#include <unistd.h>

using namespace pcrt;

//===----------------------------------------------------------------------===//
// The ranks' threads
//===----------------------------------------------------------------------===//

VirtualWorld::VirtualWorld(int size) : ranks(size), timeout(timeoutSeconds()) {}

void VirtualWorld::recordFailure(pcrt_status status, std::string message) {
  if (failure != PCRT_OK)
    return;
  failure = status;
  failureMessage = std::move(message);
  changed.notify_all();
}

pcrt_status VirtualWorld::run(const std::function<pcrt_status(Comm &)> &body) {
  std::vector<int> cores = coresOfProcess();
  std::vector<std::thread> threads;
  int running = size();
  for (int rank = 0; rank < size(); ++rank)
    threads.emplace_back([&, rank] {
      pinToCores(coresOfRank(cores, rank, size()));
      pcrt_status status;
      {
        VirtualComm comm(*this, rank);
        status = body(comm);
      }
      std::lock_guard<std::mutex> lock(mutex);
      if (status != PCRT_OK)
        recordFailure(status, rankName(rank) + " failed");
      --running;
      changed.notify_all();
    });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return running == 0 || failure != PCRT_OK; });
  // A rank in a long computation sees the failure at its next move.
  if (!changed.wait_for(lock, std::chrono::milliseconds(700), [&] { return running == 0; })) {
    finishPrinting();
    _exit(failure);
  }
  lock.unlock();
  for (std::thread &thread : threads)
    thread.join();
  return failure;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

VirtualComm::VirtualComm(VirtualWorld &shared, int rank)
    : Comm(rank, shared.size()), shared(shared), met(shared.size()), ins(shared.size()), outs(shared.size()) {}

VirtualComm::~VirtualComm() {
  std::lock_guard<std::mutex> lock(shared.mutex);
  shared.ranks[rank()].left = true;
  shared.changed.notify_all();
}

void VirtualComm::setBusy(bool busy) {
  std::lock_guard<std::mutex> lock(shared.mutex);
  shared.ranks[rank()].busy = busy;
  shared.ranks[rank()].lastBusy = monotonicSeconds();
}

bool VirtualComm::isTimeUp(std::unique_lock<std::mutex> &lock, Patience &patience) {
  shared.changed.wait_for(lock, std::chrono::duration<double>(patience.sleep()));
  if (!patience.isOver())
    return false;
  double now = monotonicSeconds(), idle = neverBusy;
  for (const VirtualWorld::Rank &other : shared.ranks)
    idle = std::min(idle, other.busy && !other.waits() && !other.left ? 0 : now - other.lastBusy);
  return !patience.isExtended(idle);
}

bool VirtualComm::allReached(const Group &group, uint64_t phase) const {
  for (int peer : group.ranks)
    if (shared.ranks[peer].slots[group.id].phase < phase)
      return false;
  return true;
}

std::string VirtualComm::doing(int rank, int group) const {
  std::string text = describeKey(shared.ranks[rank].slots[group].key);
  return text.empty() ? "its first move" : text;
}

bool VirtualComm::standsStill() const {
  for (const VirtualWorld::Rank &other : shared.ranks)
    if (!other.left &&
        (!other.waits() || (other.waitsIn ? allReached(*other.waitsIn, other.waitPhase) : other.flowReached())))
      return false;
  return true;
}

std::string VirtualComm::describeWait(int rank) const {
  const VirtualWorld::Rank &waiting = shared.ranks[rank];
  if (waiting.waitsAt)
    return rankName(waiting.waitFlow->peer) + " in " + (waiting.waitsForSpace ? "send of " : "receive of ") +
           waiting.waitFlow->describe(waiting.waitFlow->count);
  const Group &group = *waiting.waitsIn;
  int missing = 0;
  while (shared.ranks[group.ranks[missing]].slots[group.id].phase >= waiting.waitPhase)
    ++missing;
  return rankName(group.ranks[missing]) + " in " + doing(rank, group.id);
}

std::string VirtualComm::describeStandstill() const {
  std::string text;
  for (int i = 0; i < size(); ++i)
    if (!shared.ranks[i].left)
      text += (text.empty() ? "" : ", ") + rankName(i) + " waits for " + describeWait(i);
  return text;
}

pcrt_status VirtualComm::waitForMembers(std::unique_lock<std::mutex> &lock, const Group &group, uint64_t phase) {
  VirtualWorld::Rank &me = shared.ranks[rank()];
  Patience patience(shared.timeout);
  if (me.busy)
    me.lastBusy = monotonicSeconds();
  me.waitsIn = &group;
  me.waitPhase = phase;
  pcrt_status status = PCRT_OK;
  while (!allReached(group, phase)) {
    if (shared.failure != PCRT_OK) {
      status = lost("in " + doing(rank(), group.id));
      break;
    }
    std::string missing;
    int ended = -1;
    for (int peer : group.ranks) {
      if (shared.ranks[peer].slots[group.id].phase >= phase)
        continue;
      if (shared.ranks[peer].left)
        ended = peer;
    }
    if (ended >= 0) {
      status = giveUp(PCRT_PEER_LOST, rankName(ended) + " ended before joining " + doing(rank(), group.id));
      break;
    }
    if (standsStill()) {
      status = giveUp(PCRT_INTERNAL,
                      "deadlock: " + describeStandstill() + "; the ranks run their collectives in different orders");
      break;
    }
    if (isTimeUp(lock, patience) && !allReached(group, phase)) {
      for (int peer : group.ranks)
        if (shared.ranks[peer].slots[group.id].phase < phase)
          missing += (missing.empty() ? "" : ", ") + rankName(peer);
      status = giveUp(PCRT_TIMEOUT, "no answer within " + secondsText(shared.timeout) + " s from " + missing + " in " +
                                        doing(rank(), group.id) + " of " + groupName(group) +
                                        "; raise PCRT_TIMEOUT_SECONDS if that is too short");
      break;
    }
  }
  me.waitsIn = nullptr;
  if (status != PCRT_OK)
    waitForReaders(lock, group);
  return status;
}

void VirtualComm::waitForReaders(std::unique_lock<std::mutex> &lock, const Group &group) {
  shared.changed.wait(lock, [&] {
    return std::none_of(group.ranks.begin(), group.ranks.end(), [&](int peer) {
      const VirtualWorld::Rank &other = shared.ranks[peer];
      return peer != rank() && !other.left && other.slots[group.id].reads;
    });
  });
}

pcrt_status VirtualComm::arrive(const Group &group, const MoveKey &key, const void *in, void *out) {
  std::unique_lock<std::mutex> lock(shared.mutex);
  Slot &mine = shared.ranks[rank()].slots[group.id];
  mine.in = in;
  mine.out = out;
  mine.key = key;
  ++mine.phase;
  shared.changed.notify_all();
  PCRT_TRY(waitForMembers(lock, group, mine.phase));
  // The run may have failed meanwhile: members that arrived may have left, and others may have begun to read this
  // rank's memory.
  if (shared.failure != PCRT_OK) {
    waitForReaders(lock, group);
    return lost("in " + doing(rank(), group.id));
  }
  for (int i = 0; i < group.size(); ++i) {
    const Slot &theirs = shared.ranks[group.ranks[i]].slots[group.id];
    if (memcmp(&theirs.key, &key, sizeof key) != 0)
      return giveUp(PCRT_INTERNAL, "ranks run different collectives as number " + std::to_string((mine.phase + 1) / 2) +
                                       " of " + groupName(group) + ": " +
                                       describeMismatch(rank(), key, group.ranks[i], theirs.key));
    ins[i] = static_cast<const char *>(theirs.in);
    outs[i] = static_cast<char *>(theirs.out);
  }
  mine.reads = true;
  return PCRT_OK;
}

pcrt_status VirtualComm::leave(const Group &group) {
  std::unique_lock<std::mutex> lock(shared.mutex);
  Slot &mine = shared.ranks[rank()].slots[group.id];
  mine.reads = false;
  ++mine.phase;
  shared.changed.notify_all();
  return waitForMembers(lock, group, mine.phase);
}

/// Sets the error of a call in a run that has failed. Call it under the lock.
pcrt_status VirtualComm::lost(const std::string &doing) {
  return fail(PCRT_PEER_LOST, rankName(rank()) + ": " + doing + ": " + shared.failureMessage + "; the run has ended");
}

/// Records a failure of this rank. Call it under the lock.
pcrt_status VirtualComm::giveUp(pcrt_status status, const std::string &message) {
  shared.recordFailure(status, rankName(rank()) + " stopped: " + message);
  return fail(status, rankName(rank()) + ": " + message);
}

void VirtualComm::abort(pcrt_status status, const char *message) {
  std::lock_guard<std::mutex> lock(shared.mutex);
  shared.recordFailure(status, rankName(rank()) + " failed: " + message);
}

//===----------------------------------------------------------------------===//
// Memory and moves
//===----------------------------------------------------------------------===//

pcrt_status VirtualComm::allocateArena(int64_t bytes, char **base) {
  std::string error;
  PCRT_TRY(checkArenas(bytes, &error));
  pcrt_status status = error.empty() ? arena.allocate(bytes, base, &error) : PCRT_RESOURCE;
  if (status == PCRT_OK)
    return barrier();
  std::lock_guard<std::mutex> lock(shared.mutex);
  return giveUp(status, error);
}

int64_t VirtualComm::peerResidentBytes() const {
  long kib = 0;
  if (FILE *file = fopen("/proc/self/status", "re")) {
    char line[256];
    while (fgets(line, sizeof line, file) && sscanf(line, "VmHWM: %ld kB", &kib) != 1)
      ;
    fclose(file);
  }
  return int64_t(kib) * 1024 / size() * (size() - 1);
}

pcrt_status VirtualComm::barrier() {
  PCRT_TRY(arrive(world, makeKey("barrier", world), nullptr, nullptr));
  return leave(world);
}

pcrt_status VirtualComm::allGatherBytes(const void *mine, int64_t n, void *all) {
  MoveKey key = makeKey("allGatherBytes", world);
  key.outer = n;
  PCRT_TRY(arrive(world, key, mine, nullptr));
  for (int peer = 0; peer < size() && n > 0; ++peer)
    memcpy(static_cast<char *>(all) + peer * n, ins[peer], n);
  return leave(world);
}

pcrt_status VirtualComm::meet(const Group &group, const MoveKey &key, const void *mine, const void *const **theirs) {
  pcrt_status status = arrive(group, key, mine, nullptr);
  std::copy_n(ins.begin(), group.size(), met.begin());
  *theirs = met.data();
  return status;
}

pcrt_status VirtualComm::exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                                  const ParallelFor &parallelFor) {
  PCRT_TRY(arrive(group, makeKey(desc, group), in, out));
  if (const char *problem = carryOutShare(desc, group.size(), group.me, ins.data(), outs.data(), parallelFor)) {
    std::lock_guard<std::mutex> lock(shared.mutex);
    return giveUp(PCRT_INTERNAL, describeMove(desc, group.size()) + ": " + problem);
  }
  return leave(group);
}

//===----------------------------------------------------------------------===//
// Flows
//===----------------------------------------------------------------------===//

pcrt_status VirtualComm::prepareFlows() {
  {
    std::lock_guard<std::mutex> lock(shared.mutex);
    std::vector<VirtualWorld::Rank::Ring> &rings = shared.ranks[rank()].rings;
    rings.resize(flows.size());
    for (size_t i = 0; i < flows.size(); ++i)
      if (!flows[i].sends)
        rings[i].data.resize(flows[i].slots * flows[i].bytes);
  }
  return barrier();
}

pcrt_status VirtualComm::waitAt(const Flow &flow, const VirtualWorld::Rank::Ring &ring, uint64_t count, bool forSpace) {
  std::unique_lock<std::mutex> lock(shared.mutex);
  VirtualWorld::Rank &me = shared.ranks[rank()];
  Patience patience(shared.timeout);
  if (me.busy)
    me.lastBusy = monotonicSeconds();
  me.waitCount = count;
  me.waitsForSpace = forSpace;
  me.waitFlow = &flow;
  me.waitsAt = &ring;
  auto what = [&] { return (forSpace ? "send of " : "receive of ") + flow.describe(flow.count); };
  pcrt_status status = PCRT_OK;
  while (!me.flowReached() && status == PCRT_OK) {
    if (shared.failure != PCRT_OK)
      status = lost("in " + what());
    else if (shared.ranks[flow.peer].left)
      status = giveUp(PCRT_PEER_LOST, rankName(flow.peer) + " ended before joining " + what());
    else if (standsStill())
      status = giveUp(PCRT_INTERNAL,
                      "deadlock: " + describeStandstill() + "; the ranks run their collectives in different orders");
    else if (isTimeUp(lock, patience) && !me.flowReached())
      status =
          giveUp(PCRT_TIMEOUT, "no answer within " + secondsText(shared.timeout) + " s from " + rankName(flow.peer) +
                                   " in " + what() + "; raise PCRT_TIMEOUT_SECONDS if that is too short");
  }
  me.waitsAt = nullptr;
  return status;
}

pcrt_status VirtualComm::awaitSpace(const Flow &flow, uint64_t count) {
  if (count <= uint64_t(flow.slots))
    return PCRT_OK;
  return waitAt(flow, shared.ranks[flow.peer].rings[flow.partner], count - flow.slots, true);
}

void VirtualComm::endSend(int flow) {
  std::lock_guard<std::mutex> lock(shared.mutex);
  ringOf(flow).sent = flows[flow].count;
  shared.changed.notify_all();
}

void VirtualComm::endReceive(int flow) {
  std::lock_guard<std::mutex> lock(shared.mutex);
  ringOf(flow).received = flows[flow].count;
  shared.changed.notify_all();
}

pcrt_status VirtualComm::put(Flow &flow, int index, const void *data) {
  PCRT_TRY(awaitSpace(flow, flow.count));
  memcpy(ringOf(index).data.data() + int64_t((flow.count - 1) % flow.slots) * flow.bytes, data, flow.bytes);
  endSend(index);
  return PCRT_OK;
}

pcrt_status VirtualComm::take(Flow &flow, int index, void *data) {
  PCRT_TRY(waitAt(flow, ringOf(index), flow.count, false));
  memcpy(data, ringOf(index).data.data() + int64_t((flow.count - 1) % flow.slots) * flow.bytes, flow.bytes);
  endReceive(index);
  return PCRT_OK;
}
