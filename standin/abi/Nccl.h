//===- Nccl.h - The part of NCCL's ABI that the stand-in has --------------===//
// Our own declarations, as in Driver.h; a test compares them with <nccl.h>.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ABI_NCCL_H
#define PC_STANDIN_ABI_NCCL_H

#include "standin/abi/Driver.h"

#define PC_NCCL_CONSTANTS(X)                                                                                           \
  X(ncclSuccess, 0)                                                                                                    \
  X(ncclUnhandledCudaError, 1)                                                                                         \
  X(ncclSystemError, 2)                                                                                                \
  X(ncclInternalError, 3)                                                                                              \
  X(ncclInvalidArgument, 4)                                                                                            \
  X(ncclInvalidUsage, 5)                                                                                               \
  X(ncclRemoteError, 6)                                                                                                \
  X(ncclInProgress, 7)                                                                                                 \
  X(ncclSum, 0)                                                                                                        \
  X(ncclProd, 1)                                                                                                       \
  X(ncclMax, 2)                                                                                                        \
  X(ncclMin, 3)                                                                                                        \
  X(ncclAvg, 4)                                                                                                        \
  X(ncclInt8, 0)                                                                                                       \
  X(ncclUint8, 1)                                                                                                      \
  X(ncclInt32, 2)                                                                                                      \
  X(ncclUint32, 3)                                                                                                     \
  X(ncclInt64, 4)                                                                                                      \
  X(ncclUint64, 5)                                                                                                     \
  X(ncclFloat16, 6)                                                                                                    \
  X(ncclFloat32, 7)                                                                                                    \
  X(ncclFloat64, 8)                                                                                                    \
  X(ncclBfloat16, 9)

#ifdef PC_STANDIN_REAL_HEADERS
#include <nccl.h>
#else
#include <climits>

#define PC_NCCL_DECLARE(name, value) name = value,
enum { PC_NCCL_CONSTANTS(PC_NCCL_DECLARE) };
#undef PC_NCCL_DECLARE
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN

extern "C" {
// Enumerations are 32-bit integers.
typedef int ncclResult_t;
typedef int ncclRedOp_t;
typedef int ncclDataType_t;
typedef CUstream cudaStream_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;
}
#endif

#endif // PC_STANDIN_ABI_NCCL_H
