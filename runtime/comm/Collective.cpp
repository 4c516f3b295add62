//===- Collective.cpp - Agreeing on failures ------------------------------===//
// Every rank contributes a status and a message of at most 1,019 characters to one allGatherBytes.
//===----------------------------------------------------------------------===//
#include "comm/Collective.h"

#include <cstdio>
#include <vector>

using namespace pcrt;

void pcrt::requireOk(const Comm &comm, pcrt_status status) {
  if (status != PCRT_OK)
    fail(status, comm.error());
}

std::optional<Failure> pcrt::firstFailure(Comm &comm, const std::optional<Failure> &mine) {
  struct Verdict {
    int32_t status;
    char message[1020];
  };
  Verdict verdict{};
  if (mine) {
    verdict.status = mine->status;
    snprintf(verdict.message, sizeof verdict.message, "%s", mine->message.c_str());
  }
  std::vector<Verdict> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&verdict, sizeof verdict, all.data()));
  for (const Verdict &other : all)
    if (other.status != PCRT_OK)
      return Failure{pcrt_status(other.status), other.message};
  return std::nullopt;
}

void pcrt::agree(Comm &comm, const Failure *mine) {
  if (auto first = firstFailure(comm, mine ? std::optional(*mine) : std::nullopt))
    throw *first;
}
