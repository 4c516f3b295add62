//===- Nccl.h - NCCL's functions, types and values ------------------------===//
// The part of libnccl 2.26 and newer that the runtime uses; test/Runtime/cuda/Headers.cpp compares it with NVIDIA's
// header.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_NCCL_H
#define PCRT_CUDA_NCCL_H

#include "cuda/Driver.h"

#include <climits>

namespace pcrt::cuda {

using NcclComm = struct NcclCommObject *;
using NcclWindow = struct NcclWindowObject *;

enum NcclResult : int {
  NcclSuccess = 0,
  NcclUnhandledCudaError = 1,
  NcclSystemError = 2,
  NcclInternalError = 3,
  NcclInvalidArgument = 4,
  NcclInvalidUsage = 5,
  NcclRemoteError = 6,
  NcclInProgress = 7,
};
enum : int { NcclInt8 = 0, NcclInt32 = 2, NcclFloat32 = 7, NcclBfloat16 = 9 };
enum : int { NcclSum = 0, NcclMax = 2 };
enum : int { NcclSplitNoColor = -1 };
enum : int { NcclWindowSymmetric = 1 };

/// The layout of ncclUniqueId.
struct NcclUniqueId {
  char bytes[128];
};

/// ncclConfig_t of NCCL 2.28; newer libraries accept it because of `size` and `version`.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 22809;
  int blocking = INT_MIN, cgaClusterSize = INT_MIN, minCtas = INT_MIN, maxCtas = INT_MIN;
  const char *netName = nullptr;
  int splitShare = INT_MIN, trafficClass = INT_MIN;
  const char *commName = nullptr;
  int collnetEnable = INT_MIN, ctaPolicy = INT_MIN, shrinkShare = INT_MIN, nvlsCtas = INT_MIN;
  int channelsPerNetPeer = INT_MIN, nvlinkCentric = INT_MIN;
};

// clang-format off
#define PCRT_NCCL_SYMBOLS(X) \
  X(NcclResult, ncclGetVersion, int *version) \
  X(NcclResult, ncclGetUniqueId, NcclUniqueId *id) \
  X(const char *, ncclGetErrorString, NcclResult result) \
  X(const char *, ncclGetLastError, NcclComm comm) \
  X(NcclResult, ncclCommInitRankConfig, NcclComm *comm, int ranks, NcclUniqueId id, int rank, NcclConfig *config) \
  X(NcclResult, ncclCommSplit, NcclComm comm, int color, int key, NcclComm *made, NcclConfig *config) \
  X(NcclResult, ncclCommFinalize, NcclComm comm) \
  X(NcclResult, ncclCommDestroy, NcclComm comm) \
  X(NcclResult, ncclCommAbort, NcclComm comm) \
  X(NcclResult, ncclCommGetAsyncError, NcclComm comm, NcclResult *error) \
  X(NcclResult, ncclCommCount, NcclComm comm, int *count) \
  X(NcclResult, ncclCommUserRank, NcclComm comm, int *rank) \
  X(NcclResult, ncclCommRegister, NcclComm comm, void *at, size_t bytes, void **handle) \
  X(NcclResult, ncclCommDeregister, NcclComm comm, void *handle) \
  X(NcclResult, ncclGroupStart, ) \
  X(NcclResult, ncclGroupEnd, ) \
  X(NcclResult, ncclAllReduce, const void *in, void *out, size_t count, int dtype, int reduction, NcclComm comm, Stream stream) \
  X(NcclResult, ncclAllGather, const void *in, void *out, size_t inCount, int dtype, NcclComm comm, Stream stream) \
  X(NcclResult, ncclReduceScatter, const void *in, void *out, size_t outCount, int dtype, int reduction, NcclComm comm, Stream stream) \
  X(NcclResult, ncclBroadcast, const void *in, void *out, size_t count, int dtype, int root, NcclComm comm, Stream stream) \
  X(NcclResult, ncclReduce, const void *in, void *out, size_t count, int dtype, int reduction, int root, NcclComm comm, Stream stream) \
  X(NcclResult, ncclSend, const void *from, size_t count, int dtype, int peer, NcclComm comm, Stream stream) \
  X(NcclResult, ncclRecv, void *to, size_t count, int dtype, int peer, NcclComm comm, Stream stream)

#define PCRT_NCCL_OPTIONAL_SYMBOLS(X) \
  X(NcclResult, ncclAlltoAll, const void *in, void *out, size_t count, int dtype, NcclComm comm, Stream stream) \
  X(NcclResult, ncclCommWindowRegister, NcclComm comm, void *at, size_t bytes, NcclWindow *window, int flags) \
  X(NcclResult, ncclCommWindowDeregister, NcclComm comm, NcclWindow window)
// clang-format on

/// The functions of NCCL that the runtime calls, as loaded at run time. Optional ones may be null.
struct Nccl {
  PCRT_NCCL_SYMBOLS(PCRT_SYMBOL_MEMBER)
  PCRT_NCCL_OPTIONAL_SYMBOLS(PCRT_SYMBOL_MEMBER)
  std::vector<Symbol> symbols() {
    return {PCRT_NCCL_SYMBOLS(PCRT_SYMBOL_REQUIRED) PCRT_NCCL_OPTIONAL_SYMBOLS(PCRT_SYMBOL_OPTIONAL)};
  }
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_NCCL_H
