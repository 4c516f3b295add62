//===- Driver.h - The CUDA driver's functions, types and values -----------===//
// The part of libcuda that the runtime uses, under the names of one fixed ABI (the suffixes _v2 matter: the plain names
// are older functions). Values keep NVIDIA's meaning; test/Runtime/cuda/Headers.cpp compares all of them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_DRIVER_H
#define PCRT_CUDA_DRIVER_H

#include "cuda/Symbols.h"
#include "pcrt/standin_hook.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pcrt::cuda {

using Result = int;                 ///< CUresult; 0 is success.
using Ordinal = int;                ///< CUdevice.
using Address = unsigned long long; ///< CUdeviceptr.
using Context = struct ContextObject *;
using Module = struct ModuleObject *;
using Function = struct FunctionObject *;
using Stream = struct StreamObject *;
using Event = struct EventObject *;
using Graph = struct GraphObject *;
using GraphExec = struct GraphExecObject *;
using HostFunction = void (*)(void *);

inline Address addressOf(const void *at) { return reinterpret_cast<Address>(at); }

enum : Result {
  Success = 0,
  ErrorOutOfMemory = 2,
  ErrorNoDevice = 100,
  ErrorNoBinaryForDevice = 209,
  ErrorNotReady = 600,
};

enum : int {
  AttributeMultiprocessors = 16,
  AttributeMajor = 75,
  AttributeMinor = 76,
  AttributeSharedMemoryOptin = 97,
  AttributeVirtualMemory = 102,
  AttributeDirectRdma = 110,
};

enum : int { JitErrorLog = 5, JitErrorLogBytes = 6 };
enum : int { FunctionSharedBytes = 1, FunctionLocalBytes = 3, FunctionRegisters = 4, FunctionMaxDynamicShared = 8 };
enum : unsigned { StreamNonBlocking = 1, EventDisableTiming = 2 };
enum : int { CaptureThreadLocal = 1 };
enum : unsigned long long { GraphUseNodePriority = 8 };
enum : int { AllocationPinned = 1, LocationDevice = 1, HandlePosixFile = 1, AccessReadWrite = 3 };
enum : int { GranularityRecommended = 1 };
enum : int { MemoryHost = 1, MemoryDevice = 2 };

/// The layout of CUmemLocation.
struct Location {
  int type, id;
};

/// The layout of CUmemAllocationProp.
struct AllocationProperties {
  int type, handleTypes;
  Location location;
  void *reservedForWindows;
  unsigned char compression, directRdma;
  unsigned short usage;
  unsigned char reserved[4];
};

/// The layout of CUmemAccessDesc.
struct AccessDescription {
  Location location;
  int flags;
};

/// A copy of `height` rows of `width` bytes.
struct Copy2D {
  size_t fromX, fromY;
  int fromType;
  const void *fromHost;
  Address fromDevice;
  void *fromArray;
  size_t fromPitch;
  size_t toX, toY;
  int toType;
  void *toHost;
  Address toDevice;
  void *toArray;
  size_t toPitch;
  size_t width, height;
};

// clang-format off
#define PCRT_DRIVER_SYMBOLS(X) \
  X(Result, cuInit, unsigned flags) \
  X(Result, cuDriverGetVersion, int *version) \
  X(Result, cuGetErrorName, Result error, const char **text) \
  X(Result, cuGetErrorString, Result error, const char **text) \
  X(Result, cuDeviceGetCount, int *count) \
  X(Result, cuDeviceGet, Ordinal *device, int ordinal) \
  X(Result, cuDeviceGetName, char *name, int bytes, Ordinal device) \
  X(Result, cuDeviceGetPCIBusId, char *id, int bytes, Ordinal device) \
  X(Result, cuDeviceGetAttribute, int *value, int attribute, Ordinal device) \
  X(Result, cuDeviceTotalMem_v2, size_t *bytes, Ordinal device) \
  X(Result, cuDevicePrimaryCtxRetain, Context *context, Ordinal device) \
  X(Result, cuDevicePrimaryCtxRelease_v2, Ordinal device) \
  X(Result, cuCtxSetCurrent, Context context) \
  X(Result, cuCtxGetCurrent, Context *context) \
  X(Result, cuCtxSynchronize, ) \
  X(Result, cuCtxGetStreamPriorityRange, int *least, int *greatest) \
  X(Result, cuMemGetInfo_v2, size_t *unused, size_t *total) \
  X(Result, cuMemHostAlloc, void **at, size_t bytes, unsigned flags) \
  X(Result, cuMemFreeHost, void *at) \
  X(Result, cuMemHostRegister_v2, void *at, size_t bytes, unsigned flags) \
  X(Result, cuMemHostUnregister, void *at) \
  X(Result, cuMemGetAllocationGranularity, size_t *bytes, const AllocationProperties *properties, int option) \
  X(Result, cuMemAddressReserve, Address *at, size_t bytes, size_t alignment, Address wanted, unsigned long long flags) \
  X(Result, cuMemAddressFree, Address at, size_t bytes) \
  X(Result, cuMemCreate, unsigned long long *handle, size_t bytes, const AllocationProperties *properties, unsigned long long flags) \
  X(Result, cuMemRelease, unsigned long long handle) \
  X(Result, cuMemMap, Address at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) \
  X(Result, cuMemUnmap, Address at, size_t bytes) \
  X(Result, cuMemSetAccess, Address at, size_t bytes, const AccessDescription *access, size_t count) \
  X(Result, cuMemcpyHtoDAsync_v2, Address to, const void *from, size_t bytes, Stream stream) \
  X(Result, cuMemcpyDtoHAsync_v2, void *to, Address from, size_t bytes, Stream stream) \
  X(Result, cuMemcpyDtoDAsync_v2, Address to, Address from, size_t bytes, Stream stream) \
  X(Result, cuMemcpy2DAsync_v2, const Copy2D *copy, Stream stream) \
  X(Result, cuMemsetD8Async, Address at, unsigned char value, size_t count, Stream stream) \
  X(Result, cuMemsetD32Async, Address at, unsigned value, size_t count, Stream stream) \
  X(Result, cuModuleLoadDataEx, Module *module, const void *image, unsigned options, int *names, void **values) \
  X(Result, cuModuleUnload, Module module) \
  X(Result, cuModuleGetFunction, Function *function, Module module, const char *name) \
  X(Result, cuFuncGetAttribute, int *value, int attribute, Function function) \
  X(Result, cuFuncSetAttribute, Function function, int attribute, int value) \
  X(Result, cuLaunchKernel, Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes, Stream stream, void **parameters, void **extra) \
  X(Result, cuLaunchHostFunc, Stream stream, HostFunction function, void *argument) \
  X(Result, cuStreamCreateWithPriority, Stream *stream, unsigned flags, int priority) \
  X(Result, cuStreamDestroy_v2, Stream stream) \
  X(Result, cuStreamSynchronize, Stream stream) \
  X(Result, cuStreamQuery, Stream stream) \
  X(Result, cuStreamWaitEvent, Stream stream, Event event, unsigned flags) \
  X(Result, cuStreamBeginCapture_v2, Stream stream, int mode) \
  X(Result, cuStreamEndCapture, Stream stream, Graph *graph) \
  X(Result, cuStreamIsCapturing, Stream stream, int *status) \
  X(Result, cuEventCreate, Event *event, unsigned flags) \
  X(Result, cuEventDestroy_v2, Event event) \
  X(Result, cuEventRecord, Event event, Stream stream) \
  X(Result, cuEventQuery, Event event) \
  X(Result, cuEventSynchronize, Event event) \
  X(Result, cuEventElapsedTime_v2, float *milliseconds, Event start, Event end) \
  X(Result, cuGraphInstantiateWithFlags, GraphExec *exec, Graph graph, unsigned long long flags) \
  X(Result, cuGraphUpload, GraphExec exec, Stream stream) \
  X(Result, cuGraphLaunch, GraphExec exec, Stream stream) \
  X(Result, cuGraphExecDestroy, GraphExec exec) \
  X(Result, cuGraphDestroy, Graph graph)

#define PCRT_DRIVER_OPTIONAL_SYMBOLS(X) \
  X(const pc_standin_functions *, pc_standin_hook, ) /* exported by a stand-in alone */ \
  X(Result, cuGraphDebugDotPrint, Graph graph, const char *path, unsigned flags)
// clang-format on

/// The functions of the CUDA driver that the runtime calls, as loaded at run time. Optional ones may be null.
struct Driver {
  PCRT_DRIVER_SYMBOLS(PCRT_SYMBOL_MEMBER)
  PCRT_DRIVER_OPTIONAL_SYMBOLS(PCRT_SYMBOL_MEMBER)

  std::vector<Symbol> symbols() {
    return {PCRT_DRIVER_SYMBOLS(PCRT_SYMBOL_REQUIRED) PCRT_DRIVER_OPTIONAL_SYMBOLS(PCRT_SYMBOL_OPTIONAL)};
  }
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_DRIVER_H
