//===- Device.cpp - Devices, contexts, errors, symbols --------------------===//
// A device looks like an H200 (sm_90, 132 multiprocessors). cuGetErrorString returns the reason of a refusal or report,
// so that programs print it.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/standin.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <set>
#include <utility>

using namespace pc::standin;

/// The context of a device.
struct CUctx_st {
  int device;
};

static bool initialized = false;
static thread_local CUcontext currentContext = nullptr;

bool pc::standin::isInitialized() { return initialized; }
int pc::standin::currentDevice() { return currentContext ? currentContext->device : -1; }

#define ENTER()                                                                                                        \
  Lock lock(driverMutex());                                                                                            \
  if (CUresult entered = enter(__func__))                                                                              \
  return entered
#define CHECK_DEVICE(device)                                                                                           \
  if (device < 0 || device >= options().devices)                                                                       \
  return refuse(CUDA_ERROR_INVALID_DEVICE, std::string(__func__) + ": there is no device " + std::to_string(device) +  \
                                               " of " + std::to_string(options().devices) + " (PC_STANDIN_DEVICES)")

PC_EXPORT const pc_standin_functions *pc_standin_hook(void) {
  static const pc_standin_functions functions{pc_standin_enqueue, pc_standin_label, pc_standin_name_memory,
                                              pc_standin_polled};
  return &functions;
}

PC_EXPORT void pc_standin_reset(uint64_t seed) {
  Lock lock(driverMutex());
  options().seed = seed;
  resetScheduler(seed);
  resetStreams();
  resetOrder();
  forgetReports();
}

PC_EXPORT CUresult cuInit(unsigned) {
  Lock lock(driverMutex());
  if (!std::exchange(initialized, true))
    readQueues();
  return stickyError();
}

PC_EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

static const char *errorName(CUresult error) {
  switch (error) {
#define CASE(name, value)                                                                                              \
  case value:                                                                                                          \
    return #name;
    PC_CUDA_ERRORS(CASE)
#undef CASE
  default:
    return nullptr;
  }
}

PC_EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = errorName(error);
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// The text of the report or refusal with this code, if there is one; otherwise the name of the error.
PC_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
  Lock lock(driverMutex());
  *text = errorName(error);
  if (!*text)
    return CUDA_ERROR_INVALID_VALUE;
  static auto *kept = new std::set<std::string>; // callers keep the pointers
  if (std::string why = explanation(error); !why.empty())
    *text = kept->insert(std::move(why)).first->c_str();
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int, cuuint64_t,
                                       CUdriverProcAddressQueryResult *status) {
  static void *self = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void *>(&cuGetProcAddress_v2), &info)
               ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL)
               : nullptr;
  }();
  *function = nullptr;
  for (const char *suffix : {"_v3", "_v2", "WithFlags", ""})
    if (self && !*function)
      *function = dlsym(self, (std::string(symbol) + suffix).c_str());
  if (status)
    *status = static_cast<CUdriverProcAddressQueryResult>(*function ? 0 : 1);
  return *function ? CUDA_SUCCESS : refuse(CUDA_ERROR_NOT_FOUND, std::string("the stand-in has no ") + symbol);
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER();
  *count = options().devices;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER();
  CHECK_DEVICE(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  snprintf(name, bytes, "pc stand-in");
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  memset(uuid->bytes, 0, sizeof uuid->bytes);
  memcpy(uuid->bytes, "pc stand-in", 11);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  snprintf(id, bytes, "0000:%02x:00.0", device + 1);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  *bytes = options().memoryBytes;
  return CUDA_SUCCESS;
}

/// The attributes of an H200 on which launches depend.
PC_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  struct Attribute {
    int id, value;
  };
  const Attribute attributes[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, multiprocessors},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device + 1},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
  };
  for (const Attribute &known : attributes)
    if (known.id == static_cast<int>(attribute)) {
      *value = known.value;
      return CUDA_SUCCESS;
    }
  return refuse(CUDA_ERROR_INVALID_VALUE,
                "cuDeviceGetAttribute: the stand-in has no attribute " + std::to_string(static_cast<int>(attribute)));
}

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  static auto *contexts = new std::vector<CUctx_st *>;
  for (int i = static_cast<int>(contexts->size()); i <= device; ++i)
    contexts->push_back(new CUctx_st{i});
  *context = (*contexts)[device];
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER();
  CHECK_DEVICE(device);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER();
  currentContext = context;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER();
  *context = currentContext;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER();
  if (!currentContext)
    return refuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxGetDevice: this thread has no context");
  *device = currentContext->device;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER();
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
