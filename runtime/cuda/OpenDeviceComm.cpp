//===- OpenDeviceComm.cpp - Chooses how devices move data -----------------===//
// PCRT_CUDA_COMM=host|nccl overrides the choice. Virtual ranks move data on their common device, a stand-in without
// NCCL moves data through host memory, and all others use NCCL.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "cuda/HostMoves.h"
#include "cuda/NcclMoves.h"
#include "cuda/VirtualMoves.h"

#include <cstdlib>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

std::unique_ptr<DeviceComm> pcrt::cuda::openDeviceComm(Session &session, Comm &comm, const pcrt_program &program,
                                                       const std::vector<Group> &groups,
                                                       const std::vector<bool> &besideProducts, bool arenaIsUsed) {
  const char *chosen = getenv("PCRT_CUDA_COMM");
  bool host = chosen && !strcmp(chosen, "host");
  if (chosen && *chosen && !host && strcmp(chosen, "nccl") != 0)
    fail(PCRT_USAGE, std::string("PCRT_CUDA_COMM='") + chosen + "' is not one of host, nccl");
  bool isVirtual = !strcmp(comm.transport(), "virtual");
  if (isVirtual && host)
    fail(PCRT_USAGE,
         "PCRT_CUDA_COMM=host does not work with virtual ranks, because a driver may run the host functions of one "
         "process one at a time, and they would wait for each other forever; unset PCRT_CUDA_COMM");
  // A stand-in that is only a driver has no NCCL. It runs host functions on the thread that enqueues them.
  if (!chosen && session.standin && !session.standin->enqueue)
    host = true;
  if (host)
    return std::make_unique<HostMoves>(session, comm, program, groups, arenaIsUsed);
  if (isVirtual)
    return std::make_unique<VirtualMoves>(session, static_cast<VirtualComm &>(comm), groups);
  return std::make_unique<NcclMoves>(session, comm, program, groups, besideProducts);
}
