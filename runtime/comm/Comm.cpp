//===- Comm.cpp - The code that all transports share ----------------------===//
// Checks every move before a transport sees it, and carries out moves that need no traffic. A malformed move is a bug
// of the compiler (PCRT_INTERNAL).
//===----------------------------------------------------------------------===//
#include "comm/Comm.h"
#include "comm/FreeMemory.h"
#include "comm/MoveKey.h"
#include "comm/Moves.h"

#include <unistd.h>
#include <utility>

using namespace pcrt;

Comm::Comm(int rank, int size) : world(worldGroup(rank, size)), myRank(rank), numRanks(size) {}

pcrt_status Comm::fail(pcrt_status status, std::string message) {
  lastError = std::move(message);
  return status;
}

pcrt_status Comm::checkArenas(int64_t bytes, std::string *problem) {
  MemoryWish mine;
  gethostname(mine.machine, sizeof mine.machine - 1);
  mine.bytes = double(bytes);
  mine.free = freeMemory();
  std::vector<MemoryWish> all(size());
  pcrt_status status = allGatherBytes(&mine, sizeof mine, all.data());
  if (status == PCRT_OK)
    *problem = lackOfMemory(all, rank());
  return status;
}

/// Returns the error in a move, or an empty string.
static std::string problemOf(const pcrt_move_desc &desc, const Group &group, const void *in, const void *out) {
  std::string problem = checkMove(desc, group, in, out);
  if (problem.empty() && group.size() > 1 && (group.id < 0 || group.id >= kWorldGroup))
    problem =
        "group " + std::to_string(group.id) + " is beyond the " + std::to_string(kWorldGroup) + " groups of a program";
  return problem;
}

pcrt_status Comm::move(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) {
  if (std::string problem = problemOf(desc, group, in, out); !problem.empty())
    return fail(PCRT_INTERNAL, "rank " + std::to_string(rank()) + ": " + problem + "; this is a bug of the compiler");
  if (isLocalMove(desc, group)) {
    localMove(desc, group, in, out, parallelFor);
    return PCRT_OK;
  }
  return exchange(desc, group, in, out, parallelFor);
}

pcrt_status Comm::start(Ticket &ticket, const ParallelFor &parallelFor) {
  for (int i = 0; i < ticket.count; ++i) {
    std::string problem = problemOf(ticket.moves[i], *ticket.group, ticket.ins[i], ticket.outs[i]);
    if (problem.empty() && isLocalMove(ticket.moves[i], *ticket.group) && ticket.group->size() > 1)
      problem = "malformed pc.start: " + describeMove(ticket.moves[i], ticket.group->size()) + " has no traffic";
    if (!problem.empty())
      return fail(PCRT_INTERNAL, "rank " + std::to_string(rank()) + ": " + problem + "; this is a bug of the compiler");
  }
  if (ticket.group->size() > 1)
    return beginMoves(ticket, parallelFor);
  for (int i = 0; i < ticket.count; ++i)
    localMove(ticket.moves[i], *ticket.group, ticket.ins[i], ticket.outs[i], parallelFor);
  return PCRT_OK;
}

pcrt_status Comm::wait(Ticket &ticket, const ParallelFor &parallelFor) {
  return ticket.group->size() > 1 ? endMoves(ticket, parallelFor) : PCRT_OK;
}

pcrt_status Comm::endMoves(Ticket &ticket, const ParallelFor &parallelFor) {
  for (int i = 0; i < ticket.count; ++i)
    if (pcrt_status status = exchange(ticket.moves[i], *ticket.group, ticket.ins[i], ticket.outs[i], parallelFor))
      return status;
  return PCRT_OK;
}
