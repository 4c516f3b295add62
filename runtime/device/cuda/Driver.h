//===- Driver.h - the CUDA driver's functions, types and values -----------===//
//
// What the runtime uses of libcuda, under the names of one fixed ABI (the
// suffixes _v2 matter: the plain names are older functions). Values keep
// NVIDIA's meaning; test/Runtime/cuda/Headers.cpp compares all of them.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_CUDA_DRIVER_H
#define PCRT_DEVICE_CUDA_DRIVER_H

#include "device/cuda/Symbols.h"

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
};

enum : int { JitErrorLog = 5, JitErrorLogBytes = 6 };
enum : int { FunctionSharedBytes = 1, FunctionLocalBytes = 3, FunctionRegisters = 4, FunctionMaxDynamicShared = 8 };
enum : unsigned { StreamNonBlocking = 1, EventDisableTiming = 2 };
enum : int { CaptureThreadLocal = 1 };
enum : int { AllocationPinned = 1, LocationDevice = 1, HandlePosixFile = 1, AccessReadWrite = 3 };
enum : int { GranularityRecommended = 1 };
enum : int { MemoryHost = 1, MemoryDevice = 2 };

struct Location {
  int type, id;
};

struct AllocationProperties {
  int type, handleTypes;
  Location location;
  void *reservedForWindows;
  unsigned char compression, directRdma;
  unsigned short usage;
  unsigned char reserved[4];
};

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
  X(Result, init, cuInit, unsigned flags) \
  X(Result, driverGetVersion, cuDriverGetVersion, int *version) \
  X(Result, getErrorName, cuGetErrorName, Result error, const char **text) \
  X(Result, getErrorString, cuGetErrorString, Result error, const char **text) \
  X(Result, deviceGetCount, cuDeviceGetCount, int *count) \
  X(Result, deviceGet, cuDeviceGet, Ordinal *device, int ordinal) \
  X(Result, deviceGetName, cuDeviceGetName, char *name, int bytes, Ordinal device) \
  X(Result, deviceGetPciBusId, cuDeviceGetPCIBusId, char *id, int bytes, Ordinal device) \
  X(Result, deviceGetAttribute, cuDeviceGetAttribute, int *value, int attribute, Ordinal device) \
  X(Result, deviceTotalMem, cuDeviceTotalMem_v2, size_t *bytes, Ordinal device) \
  X(Result, primaryContextRetain, cuDevicePrimaryCtxRetain, Context *context, Ordinal device) \
  X(Result, primaryContextRelease, cuDevicePrimaryCtxRelease_v2, Ordinal device) \
  X(Result, contextSetCurrent, cuCtxSetCurrent, Context context) \
  X(Result, contextGetCurrent, cuCtxGetCurrent, Context *context) \
  X(Result, contextSynchronize, cuCtxSynchronize, ) \
  X(Result, contextGetStreamPriorityRange, cuCtxGetStreamPriorityRange, int *least, int *greatest) \
  X(Result, memGetInfo, cuMemGetInfo_v2, size_t *unused, size_t *total) \
  X(Result, memHostAlloc, cuMemHostAlloc, void **at, size_t bytes, unsigned flags) \
  X(Result, memFreeHost, cuMemFreeHost, void *at) \
  X(Result, memHostRegister, cuMemHostRegister_v2, void *at, size_t bytes, unsigned flags) \
  X(Result, memHostUnregister, cuMemHostUnregister, void *at) \
  X(Result, memGetAllocationGranularity, cuMemGetAllocationGranularity, size_t *bytes, const AllocationProperties *properties, int option) \
  X(Result, memAddressReserve, cuMemAddressReserve, Address *at, size_t bytes, size_t alignment, Address wanted, unsigned long long flags) \
  X(Result, memAddressFree, cuMemAddressFree, Address at, size_t bytes) \
  X(Result, memCreate, cuMemCreate, unsigned long long *handle, size_t bytes, const AllocationProperties *properties, unsigned long long flags) \
  X(Result, memRelease, cuMemRelease, unsigned long long handle) \
  X(Result, memMap, cuMemMap, Address at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) \
  X(Result, memUnmap, cuMemUnmap, Address at, size_t bytes) \
  X(Result, memSetAccess, cuMemSetAccess, Address at, size_t bytes, const AccessDescription *access, size_t count) \
  X(Result, memcpyToDevice, cuMemcpyHtoDAsync_v2, Address to, const void *from, size_t bytes, Stream stream) \
  X(Result, memcpyToHost, cuMemcpyDtoHAsync_v2, void *to, Address from, size_t bytes, Stream stream) \
  X(Result, memcpyOnDevice, cuMemcpyDtoDAsync_v2, Address to, Address from, size_t bytes, Stream stream) \
  X(Result, memcpy2D, cuMemcpy2DAsync_v2, const Copy2D *copy, Stream stream) \
  X(Result, memset8, cuMemsetD8Async, Address at, unsigned char value, size_t count, Stream stream) \
  X(Result, memset32, cuMemsetD32Async, Address at, unsigned value, size_t count, Stream stream) \
  X(Result, moduleLoadData, cuModuleLoadDataEx, Module *module, const void *image, unsigned options, int *names, void **values) \
  X(Result, moduleUnload, cuModuleUnload, Module module) \
  X(Result, moduleGetFunction, cuModuleGetFunction, Function *function, Module module, const char *name) \
  X(Result, functionGetAttribute, cuFuncGetAttribute, int *value, int attribute, Function function) \
  X(Result, functionSetAttribute, cuFuncSetAttribute, Function function, int attribute, int value) \
  X(Result, launchKernel, cuLaunchKernel, Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes, Stream stream, void **parameters, void **extra) \
  X(Result, launchHostFunction, cuLaunchHostFunc, Stream stream, HostFunction function, void *argument) \
  X(Result, streamCreate, cuStreamCreateWithPriority, Stream *stream, unsigned flags, int priority) \
  X(Result, streamDestroy, cuStreamDestroy_v2, Stream stream) \
  X(Result, streamSynchronize, cuStreamSynchronize, Stream stream) \
  X(Result, streamQuery, cuStreamQuery, Stream stream) \
  X(Result, streamWaitEvent, cuStreamWaitEvent, Stream stream, Event event, unsigned flags) \
  X(Result, streamBeginCapture, cuStreamBeginCapture_v2, Stream stream, int mode) \
  X(Result, streamEndCapture, cuStreamEndCapture, Stream stream, Graph *graph) \
  X(Result, streamIsCapturing, cuStreamIsCapturing, Stream stream, int *status) \
  X(Result, eventCreate, cuEventCreate, Event *event, unsigned flags) \
  X(Result, eventDestroy, cuEventDestroy_v2, Event event) \
  X(Result, eventRecord, cuEventRecord, Event event, Stream stream) \
  X(Result, eventQuery, cuEventQuery, Event event) \
  X(Result, eventSynchronize, cuEventSynchronize, Event event) \
  X(Result, eventElapsedTime, cuEventElapsedTime_v2, float *milliseconds, Event start, Event end) \
  X(Result, graphInstantiate, cuGraphInstantiateWithFlags, GraphExec *exec, Graph graph, unsigned long long flags) \
  X(Result, graphUpload, cuGraphUpload, GraphExec exec, Stream stream) \
  X(Result, graphLaunch, cuGraphLaunch, GraphExec exec, Stream stream) \
  X(Result, graphExecDestroy, cuGraphExecDestroy, GraphExec exec) \
  X(Result, graphDestroy, cuGraphDestroy, Graph graph)

#define PCRT_DRIVER_OPTIONAL_SYMBOLS(X) \
  X(int, standinAbi, pc_standin_abi, ) /* exported by the stand-in alone, as the next three */ \
  X(void, standinLabel, pc_standin_label, const char *name) \
  X(void, standinNameMemory, pc_standin_name_memory, const void *begin, int64_t bytes, const char *name) \
  X(void, standinPolled, pc_standin_polled, const void *begin, int64_t bytes) \
  X(Result, graphDebugDotPrint, cuGraphDebugDotPrint, Graph graph, const char *path, unsigned flags)
// clang-format on

struct Driver {
  PCRT_DRIVER_SYMBOLS(PCRT_SYMBOL_MEMBER)
  PCRT_DRIVER_OPTIONAL_SYMBOLS(PCRT_SYMBOL_MEMBER)

  std::vector<Symbol> symbols() {
    return {PCRT_DRIVER_SYMBOLS(PCRT_SYMBOL_REQUIRED) PCRT_DRIVER_OPTIONAL_SYMBOLS(PCRT_SYMBOL_OPTIONAL)};
  }
};

} // namespace pcrt::cuda

#endif // PCRT_DEVICE_CUDA_DRIVER_H
