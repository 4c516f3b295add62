//===- Collective.h - Agreeing on failures --------------------------------===//
// A failure on one rank has to end the run on all of them, with one message. Outside steps, ranks agree: what fails on
// one fails on all.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_COLLECTIVE_H
#define PCRT_COMM_COLLECTIVE_H

#include "base/Failure.h"
#include "comm/Comm.h"

#include <new>
#include <optional>

namespace pcrt {

/// Throws what the communication layer says unless `status` is PCRT_OK.
void requireOk(const Comm &comm, pcrt_status status);

/// The first rank's failure, on all ranks; none where all succeeded.
std::optional<Failure> firstFailure(Comm &comm, const std::optional<Failure> &mine);

/// Throws the first rank's failure on all ranks, if there is one. `mine` is null where this rank succeeded.
void agree(Comm &comm, const Failure *mine);

/// Runs f on every rank; if it fails on one, all ranks throw that failure.
template <typename F> void onAllRanks(Comm &comm, F &&f) {
  try {
    f();
  } catch (const Failure &failure) {
    if (failure.status != PCRT_PEER_LOST && failure.status != PCRT_TIMEOUT)
      agree(comm, &failure);
    throw;
  } catch (const std::bad_alloc &) {
    Failure failure{PCRT_RESOURCE, "out of memory"};
    agree(comm, &failure);
  }
  agree(comm, nullptr);
}

} // namespace pcrt

#endif // PCRT_COMM_COLLECTIVE_H
