//===- IdleDriver.cpp - A driver that does nothing ------------------------===//
// libpc_idle_driver.so answers to the name libcuda.so.1. cuDNN loads the driver while it creates plans, to load its
// kernels. These functions report success, but nothing can run on this driver.
//===----------------------------------------------------------------------===//
#define PC_EXPORT extern "C" __attribute__((visibility("default")))

static long handle[4];

PC_EXPORT int cuInit(unsigned) { return 100; } // no device
PC_EXPORT int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

// Functions that create an object.
#define MAKES(name)                                                                                                    \
  PC_EXPORT int name(void **made) {                                                                                    \
    *made = handle;                                                                                                    \
    return 0;                                                                                                          \
  }
MAKES(cuLibraryLoadData)
MAKES(cuLibraryGetKernel)
MAKES(cuKernelGetFunction)

#define WORKS(name)                                                                                                    \
  PC_EXPORT int name() { return 0; }
WORKS(cuLibraryUnload)
WORKS(cuLibraryLoadFromFile)
WORKS(cuKernelGetAttribute)
WORKS(cuKernelSetAttribute)
WORKS(cuLaunchKernel)
WORKS(cuLaunchKernelEx)
WORKS(cuLaunchCooperativeKernel)
WORKS(cuLinkAddData)
WORKS(cuLinkComplete)
WORKS(cuLinkCreate)
WORKS(cuLinkDestroy)
WORKS(cuCtxGetCurrent)
WORKS(cuCtxGetLimit)
WORKS(cuCtxPopCurrent)
WORKS(cuCtxPushCurrent)
WORKS(cuDeviceGet)
WORKS(cuDeviceGetCount)
WORKS(cuGetErrorName)
WORKS(cuGetErrorString)
WORKS(cuOccupancyMaxPotentialClusterSize)
WORKS(cuStreamGetCtx)
