//===- Driver.h - The part of the CUDA driver's ABI that the stand-in has -===//
// Our own declarations, so that the project builds without a CUDA toolkit. With PC_STANDIN_REAL_HEADERS the sources
// compile against <cuda.h> instead: a test does so if it exists, and compares the constants.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ABI_DRIVER_H
#define PC_STANDIN_ABI_DRIVER_H

/// Constants with their values; the test compares each with <cuda.h>.
#define PC_CUDA_ERRORS(X)                                                                                              \
  X(CUDA_SUCCESS, 0)                                                                                                   \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                                       \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                       \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                                     \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                                         \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                                                                    \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                                     \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                                                   \
  X(CUDA_ERROR_ALREADY_MAPPED, 208)                                                                                    \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                                                 \
  X(CUDA_ERROR_NOT_MAPPED, 211)                                                                                        \
  X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303)                                                                         \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304)                                                                                  \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                                    \
  X(CUDA_ERROR_ILLEGAL_STATE, 401)                                                                                     \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                                                         \
  X(CUDA_ERROR_NOT_READY, 600)                                                                                         \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                                   \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                    \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                        \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                                     \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                                                                                     \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                                     \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                                        \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                                        \
  X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)                                                                              \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                                          \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                                           \
  X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                                          \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                           \
  X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                                       \
  X(CUDA_ERROR_UNKNOWN, 999)

#define PC_CUDA_CONSTANTS(X)                                                                                           \
  X(CU_STREAM_NON_BLOCKING, 1)                                                                                         \
  X(CU_EVENT_DISABLE_TIMING, 2)                                                                                        \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                                                  \
  X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                                                \
  X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                                                           \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                                                  \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                            \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                                                 \
  X(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, 8)                                                                  \
  X(CU_MEMORYTYPE_HOST, 1)                                                                                             \
  X(CU_MEMORYTYPE_DEVICE, 2)                                                                                           \
  X(CU_MEMORYTYPE_UNIFIED, 4)                                                                                          \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                                    \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                                                  \
  X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                                                  \
  X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                                                                  \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                                             \
  X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                                                                        \
  X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                                            \
  X(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 2)                                                                             \
  X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                                                             \
  X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                                                                     \
  X(CU_FUNC_ATTRIBUTE_PTX_VERSION, 5)                                                                                  \
  X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6)                                                                               \
  X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                                \
  X(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9)                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                                      \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 2)                                                                            \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 3)                                                                            \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 4)                                                                            \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 6)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 7)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                                                \
  X(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 9)                                                                      \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                                                                 \
  X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 12)                                                                   \
  X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13)                                                                                \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                      \
  X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                                                                \
  X(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36)                                                                         \
  X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                                                                   \
  X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                                                            \
  X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                                                                        \
  X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                                        \
  X(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                                                             \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                  \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                  \
  X(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 78)                                                               \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                                                      \
  X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82)                                                          \
  X(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95)                                                                        \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                                         \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                      \
  X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                              \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 106)                                                            \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                                  \
  X(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 111)

#ifdef PC_STANDIN_REAL_HEADERS
#include <cuda.h>
#else
#include <cstddef>
#include <cstdint>

#define PC_CUDA_DECLARE(name, value) name = value,
enum { PC_CUDA_ERRORS(PC_CUDA_DECLARE) };
enum { PC_CUDA_CONSTANTS(PC_CUDA_DECLARE) };
#undef PC_CUDA_DECLARE

extern "C" {
// Enumerations of the driver are 32-bit integers.
typedef int CUresult;
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUjit_option;
typedef int CUlibraryOption;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemorytype;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUdriverProcAddressQueryResult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUarray_st *CUarray;
typedef void (*CUhostFn)(void *);

typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;

typedef struct CUmemLocation_st {
  int type, id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

typedef struct CUDA_MEMCPY2D_st {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch, dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUlaunchAttribute_st {
  int id;
  char pad[4];
  uint64_t value[8];
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;
}
#endif // PC_STANDIN_REAL_HEADERS

/// Definitions that other libraries find by name.
#define PC_EXPORT extern "C" __attribute__((visibility("default")))

#endif // PC_STANDIN_ABI_DRIVER_H
