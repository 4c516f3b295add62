//===- Collective.h - Agreeing on failures --------------------------------===//
// A failure on one rank ends the run on all ranks, with one message. Between steps all ranks call these functions
// together, so a failure on one rank becomes a failure on all.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_COLLECTIVE_H
#define PCRT_COMM_COLLECTIVE_H

#include "base/Failure.h"
#include "comm/Comm.h"

#include <new>
#include <optional>

namespace pcrt {

/// Throws a Failure with the message of `comm` unless `status` is PCRT_OK.
void requireOk(const Comm &comm, pcrt_status status);

/// Returns, on all ranks, the failure of the lowest rank that has one, or nullopt if all succeeded. All ranks call it.
std::optional<Failure> firstFailure(Comm &comm, const std::optional<Failure> &mine);

/// Throws the result of firstFailure on all ranks, if there is one. `mine` is null if this rank succeeded.
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
