//===- ShmMoves.cpp - Moves between ranks of one machine ------------------===//
// A move has three steps: announce it (key, source, result), wait until all members have announced it, and carry out
// one's own share. A rank is done with a move when its share is complete; a result is complete when all members are
// done. Sources outside the arena are copied to scratch memory first, one move at a time.
//===----------------------------------------------------------------------===//
#include "comm/Moves.h"
#include "comm/ShmComm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace pcrt;

//===----------------------------------------------------------------------===//
// Control data
//===----------------------------------------------------------------------===//

uint64_t ShmComm::announce(const Group &group, const MoveKey &key, int64_t in, int64_t out) {
  Slot &mine = slot(rank(), group.id);
  uint64_t number = mine.announced.load(std::memory_order_relaxed) + 1;
  mine.move(number) = {in, out, key};
  mine.announced.store(number, std::memory_order_release);
  return number;
}

pcrt_status ShmComm::arrive(const Group &group, const MoveKey &key, int64_t in) {
  uint64_t number = announce(group, key, in, 0);
  PCRT_TRY(waitForMembers(group, {number, false}));
  return compareKeys(group, number);
}

pcrt_status ShmComm::leave(const Group &group) {
  Slot &mine = slot(rank(), group.id);
  uint64_t number = mine.announced.load(std::memory_order_relaxed);
  mine.done.store(number, std::memory_order_release);
  return waitForMembers(group, {number, true});
}

pcrt_status ShmComm::barrier() {
  PCRT_TRY(arrive(world, makeKey("barrier", world), 0));
  return leave(world);
}

pcrt_status ShmComm::allGatherBytes(const void *mine, int64_t n, void *all) {
  char *scratch = ownScratch(n > 0 ? n : 1);
  if (!scratch)
    return giveUp(PCRT_RESOURCE, "no memory for " + std::to_string(n) + " bytes of control data");
  if (n > 0)
    memcpy(scratch, mine, n);
  MoveKey key = makeKey("allGatherBytes", world);
  key.outer = n;
  PCRT_TRY(arrive(world, key, scratchOffset(rank())));
  uint64_t number = slot(rank(), world.id).announced.load(std::memory_order_relaxed);
  for (int peer = 0; peer < size() && n > 0; ++peer) {
    const char *theirs = peerPointer(peer, slot(peer, world.id).move(number).in);
    if (!theirs)
      return giveUp(PCRT_RESOURCE, "cannot map the memory of " + rankName(peer));
    memcpy(static_cast<char *>(all) + peer * n, theirs, n);
  }
  pcrt_status status = leave(world);
  if (status == PCRT_OK)
    releaseScratch();
  return status;
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

ShmComm::Copies ShmComm::copiesOf(const pcrt_move_desc &desc, const Group &group, const void *in,
                                  const void *out) const {
  int64_t bytes = elementBytes(desc.dtype);
  Copies copies;
  copies.inBytes = inElements(desc, group.size()) * bytes;
  copies.outBytes = outElements(desc, group.size()) * bytes;
  copies.in = !inArena(in, copies.inBytes);
  copies.out = desc.kind == PCRT_ALL_REDUCE && !inArena(out, copies.outBytes);
  return copies;
}

pcrt_status ShmComm::exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                              const ParallelFor &parallelFor) {
  Ticket ticket{&desc, 1, &group, &in, &out};
  enqueue(ticket);
  return endMoves(ticket, parallelFor);
}

pcrt_status ShmComm::beginMoves(Ticket &ticket, const ParallelFor &parallelFor) {
  workers = parallelFor;
  enqueue(ticket);
  return advanceAll(parallelFor);
}

pcrt_status ShmComm::endMoves(Ticket &ticket, const ParallelFor &parallelFor) {
  const Group &group = *ticket.group;
  if (ticket.done < ticket.count)
    PCRT_TRY(advance(queues[group.id], &ticket, parallelFor));
  Goal end{ticket.last, true};
  if (!reached(group, end)) // carries out other moves in the meantime
    PCRT_TRY(advanceAll(parallelFor));
  return waitForMembers(group, end);
}

void ShmComm::enqueue(Ticket &ticket) {
  Queue &queue = queues[ticket.group->id];
  (queue.head ? queue.tail->next : queue.head) = &ticket;
  queue.tail = &ticket;
}

pcrt_status ShmComm::advanceAll(const ParallelFor &parallelFor, int except) {
  for (Queue &queue : queues)
    if (&queue - queues.data() != except)
      PCRT_TRY(advance(queue, nullptr, parallelFor));
  return PCRT_OK;
}

pcrt_status ShmComm::announceNext(Queue &queue, bool mayCopy) {
  for (Ticket *ticket = queue.head; ticket; ticket = ticket->next) {
    const Group &group = *ticket->group;
    Slot &mine = slot(rank(), group.id);
    for (; ticket->announced < ticket->count; ++ticket->announced) {
      const pcrt_move_desc &desc = ticket->moves[ticket->announced];
      const void *in = ticket->ins[ticket->announced];
      void *out = ticket->outs[ticket->announced];
      uint64_t before = mine.announced.load(std::memory_order_relaxed);
      if (before >= kMaxAnnounced && !reached(group, {before + 1 - kMaxAnnounced, true}))
        return PCRT_OK; // the ring is full
      Copies copies = copiesOf(desc, group, in, out);
      // A rank has one scratch memory. So only one move that needs it is in flight, and only while this rank waits.
      if (copies.any() && !(mayCopy && mine.done.load(std::memory_order_relaxed) == before))
        return PCRT_OK;
      char *scratch = copies.any() ? ownScratch(std::max(copies.inBytes, copies.outBytes) + 1) : nullptr;
      if (copies.any() && !scratch)
        return giveUp(PCRT_RESOURCE, "no memory to copy " + std::to_string(copies.inBytes) + " bytes for " +
                                         describeMove(desc, group.size()));
      if (copies.in && copies.inBytes)
        memcpy(scratch, in, copies.inBytes);
      auto arenaAt = [&](const void *at) {
        return arenaOffset(rank()) + (static_cast<const char *>(at) - arenas[rank()].base);
      };
      int64_t inAt = copies.in ? scratchOffset(rank()) : arenaAt(in);
      // all_reduce reads each element before it writes it, so source and result may share the scratch memory.
      int64_t outAt = desc.kind != PCRT_ALL_REDUCE ? 0 : copies.out ? scratchOffset(rank()) : arenaAt(out);
      announce(group, makeKey(desc, group), inAt, outAt);
    }
  }
  return PCRT_OK;
}

pcrt_status ShmComm::advance(Queue &queue, const Ticket *until, const ParallelFor &parallelFor) {
  while (Ticket *ticket = queue.head) {
    const Group &group = *ticket->group;
    PCRT_TRY(announceNext(queue, until));
    Slot &mine = slot(rank(), group.id);
    uint64_t number = mine.done.load(std::memory_order_relaxed) + 1;
    bool announced = ticket->announced > ticket->done;
    // The move can be announced once all members are done with the move that occupies its place in the ring.
    Goal goal = announced ? Goal{number, false} : Goal{number - std::min(number, kMaxAnnounced), true};
    if (!until && (!announced || !reached(group, goal)))
      return PCRT_OK;
    PCRT_TRY(waitForMembers(group, goal));
    if (!announced)
      continue;
    const pcrt_move_desc &desc = ticket->moves[ticket->done];
    const void *in = ticket->ins[ticket->done];
    void *out = ticket->outs[ticket->done];
    PCRT_TRY(carryOut(desc, group, in, out, number, parallelFor));
    if (++ticket->done < ticket->count)
      continue;
    ticket->last = number;
    queue.head = ticket->next;
    if (ticket == until)
      return PCRT_OK;
  }
  return PCRT_OK;
}

pcrt_status ShmComm::carryOut(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                              uint64_t number, const ParallelFor &parallelFor) {
  PCRT_TRY(compareKeys(group, number));
  int n = group.size();
  bool reducesAll = desc.kind == PCRT_ALL_REDUCE; // others write into this rank's result
  for (int i = 0; i < n; ++i) {
    int peer = group.ranks[i];
    const Announcement &theirs = slot(peer, group.id).move(number);
    ins[i] = peerPointer(peer, theirs.in);
    outs[i] = reducesAll ? peerPointer(peer, theirs.out) : nullptr;
    if (!ins[i] || (reducesAll && !outs[i]))
      return giveUp(PCRT_RESOURCE, "cannot map the memory of " + rankName(peer) + ": " + strerror(errno));
  }
  if (!reducesAll)
    outs[group.me] = static_cast<char *>(out);
  if (const char *problem = carryOutShare(desc, n, group.me, ins.data(), outs.data(), parallelFor))
    return giveUp(PCRT_INTERNAL, describeMove(desc, n) + ": " + problem);
  slot(rank(), group.id).done.store(number, std::memory_order_release);

  Copies copies = copiesOf(desc, group, in, out);
  if (!copies.any())
    return PCRT_OK;
  PCRT_TRY(waitForMembers(group, {number, true}));
  if (copies.out && copies.outBytes)
    memcpy(out, scratches[rank()].base, copies.outBytes);
  releaseScratch();
  return PCRT_OK;
}
