//===- Cuda.h - Shared parts of the stand-in's tests ----------------------===//
// Declares the driver's functions that the tests call, and small helpers for memory, launches and reports.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_STANDIN_CUDA_H
#define PC_TEST_STANDIN_CUDA_H

#include "../../Checks.h"
#include "standin/abi/Driver.h"
#include "standin/standin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
CUresult cuInit(unsigned);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuDeviceGetCount(int *);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize();
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemFreeHost(void *);
CUresult cuMemGetAllocationGranularity(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemCreate(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *, CUstream);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void *);
CUresult cuStreamCreateWithPriority(CUstream *, unsigned, int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime_v2(float *, CUevent, CUevent);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphDestroy(CUgraph);
CUresult cuModuleLoadData(CUmodule *, const void *);
}

/// Checks that a call succeeds.
#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    if (int code_ = (call)) {                                                                                          \
      const char *why_ = "";                                                                                           \
      cuGetErrorString(static_cast<CUresult>(code_), &why_);                                                           \
      fprintf(stderr, "error: %s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, code_, why_);                         \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

inline void useDevice(int device) {
  OK(cuInit(0));
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
}

inline CUstream makeStream(int priority = 0) {
  CUstream stream;
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
  return stream;
}

inline CUevent makeEvent(unsigned flags = 0) {
  CUevent event;
  OK(cuEventCreate(&event, flags));
  return event;
}

/// Device and pinned memory of `count` elements.
template <typename T> T *deviceArray(size_t count) {
  CUdeviceptr at;
  OK(cuMemAlloc_v2(&at, count * sizeof(T)));
  return reinterpret_cast<T *>(at);
}
template <typename T> T *pinnedArray(size_t count) {
  void *at;
  OK(cuMemHostAlloc(&at, count * sizeof(T), 0));
  return static_cast<T *>(at);
}
inline CUdeviceptr address(const void *at) { return reinterpret_cast<CUdeviceptr>(at); }

/// All reports so far, one per line.
inline std::string reports() {
  std::string text;
  for (int i = 0; i < pc_standin_reports(); ++i)
    text += std::string(pc_standin_report(i)) + "\n";
  return text;
}

inline bool has(const std::string &text, const char *words) { return text.find(words) != std::string::npos; }

#endif // PC_TEST_STANDIN_CUDA_H
