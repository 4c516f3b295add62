//===- Comm.cpp - what all transports share --------------------------------===//
#include "comm/Comm.h"
#include "comm/Moves.h"

#include <utility>

using namespace pcrt;

pcrt_status Comm::fail(pcrt_status status, std::string message) {
  lastError = std::move(message);
  return status;
}

pcrt_status Comm::move(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) {
  std::string problem = checkMove(desc, group, in, out);
  if (!problem.empty())
    return fail(PCRT_INTERNAL, "rank " + std::to_string(rank()) + ": " + problem + "; this is a bug of the compiler");
  if (desc.kind == PCRT_SLICE || desc.kind == PCRT_MASK || desc.kind == PCRT_PAD || group.size() == 1) {
    localMove(desc, group, in, out, parallelFor);
    return PCRT_OK;
  }
  return exchange(desc, group, in, out, parallelFor);
}
