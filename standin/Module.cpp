//===- Module.cpp - Modules are host images, kernels run on the host ------===//
// A module is a host image (kernel/Image.cpp). A launch copies its parameters and becomes an item that runs the kernel
// with the access checker. PTX and cubins are refused.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/Memory.h"
#include "standin/kernel/AccessChecker.h"
#include "standin/kernel/Kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <set>

using namespace pc::standin;

/// A loaded module. It owns its functions.
struct CUmod_st {
  KernelImage image;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

/// A kernel of a module.
struct CUfunc_st {
  const pcrt_host_module *module;
  const pcrt_host_kernel *kernel;
  int maxDynamicShared = 48 << 10;
};

static std::set<CUmodule> &modules() {
  static auto *modules = new std::set<CUmodule>;
  return *modules;
}

#define ENTER()                                                                                                        \
  Lock lock(driverMutex());                                                                                            \
  if (CUresult entered = enterUncaptured(__func__))                                                                    \
  return entered

/// Makes the functions that images call visible to them, because the stand-in is loaded with local symbols.
static void exportOwnSymbols() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&exportOwnSymbols), &info))
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

/// The size of the ELF file at `image`: it ends with its section headers, which the linker writes last.
static size_t elfBytes(const unsigned char *image) {
  uint64_t offset;
  uint16_t entry, count;
  memcpy(&offset, image + 40, 8);
  memcpy(&entry, image + 58, 2);
  memcpy(&count, image + 60, 2);
  return offset + size_t(entry) * count;
}

static CUresult loadModule(CUmodule *module, const void *image) {
  constexpr uint16_t machineX86 = 62;
  auto *bytes = static_cast<const unsigned char *>(image);
  if (memcmp(bytes, "\177ELF", 4) != 0)
    return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "the image is not a host image, because it is not an ELF file (the stand-in cannot run PTX)");
  uint16_t machine;
  memcpy(&machine, bytes + 18, 2);
  if (machine != machineX86)
    return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "the image is not a host image, but an ELF file for machine " + std::to_string(machine));
  exportOwnSymbols();
  KernelImage loaded;
  if (std::string why = loadKernelImage(image, elfBytes(bytes), loaded); !why.empty())
    return refuse(CUDA_ERROR_INVALID_IMAGE, "the host image does not load: " + why);
  *module = new CUmod_st{loaded, {}};
  modules().insert(*module);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER();
  return loadModule(module, image);
}

PC_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
  ENTER();
  return loadModule(module, image);
}

PC_EXPORT CUresult cuModuleUnload(CUmodule module) {
  ENTER();
  if (!modules().count(module))
    return refuse(CUDA_ERROR_INVALID_HANDLE, "cuModuleUnload: this is not a module");
  if (CUresult result = waitForAll(lock))
    return result;
  modules().erase(module);
  unloadKernelImage(module->image);
  delete module;
  return CUDA_SUCCESS;
}

static CUresult findFunction(CUfunction *function, CUmodule module, const char *name) {
  auto &known = module->functions[name];
  if (const pcrt_host_kernel *kernel = known ? nullptr : module->image.find(name))
    known = std::make_unique<CUfunc_st>(CUfunc_st{module->image.module, kernel});
  *function = known.get();
  return known ? CUDA_SUCCESS : refuse(CUDA_ERROR_NOT_FOUND, std::string("the image has no kernel ") + name);
}

PC_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER();
  if (!modules().count(module))
    return refuse(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetFunction: this is not a module");
  return findFunction(function, module, name);
}

PC_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *, CUmodule module, const char *name) {
  ENTER();
  if (!modules().count(module))
    return refuse(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetGlobal: this is not a module");
  void *symbol = dlsym(module->image.handle, name);
  if (!symbol)
    return refuse(CUDA_ERROR_NOT_FOUND, std::string("the image has no global ") + name);
  *at = reinterpret_cast<CUdeviceptr>(symbol);
  return CUDA_SUCCESS;
}

// A library is a module, a kernel a function.
PC_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *, void **, unsigned,
                                     CUlibraryOption *, void **, unsigned) {
  ENTER();
  return loadModule(reinterpret_cast<CUmodule *>(library), image);
}

PC_EXPORT CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload(reinterpret_cast<CUmodule>(library)); }

PC_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  return cuModuleGetFunction(reinterpret_cast<CUfunction *>(kernel), reinterpret_cast<CUmodule>(library), name);
}

PC_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }

PC_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER();
  switch (static_cast<int>(attribute)) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = 1024;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *value = static_cast<int>(function->kernel->shared_bytes);
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_NUM_REGS: // no registers here
    *value = 0;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    *value = 90;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = function->maxDynamicShared;
    return CUDA_SUCCESS;
  default:
    return refuse(CUDA_ERROR_INVALID_VALUE, "cuFuncGetAttribute: the stand-in has no such attribute");
  }
}

PC_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER();
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
    return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value + static_cast<int>(function->kernel->shared_bytes) > static_cast<int>(maxSharedBytes))
    return refuse(CUDA_ERROR_INVALID_VALUE, "cuFuncSetAttribute: more shared memory than the device has");
  function->maxDynamicShared = value;
  return CUDA_SUCCESS;
}

/// The reason why a launch is refused; empty if it is not.
static std::string checkLaunch(const CUfunc_st &function, const uint32_t grid[3], const uint32_t block[3],
                               uint32_t dynamicShared) {
  const pcrt_host_kernel &kernel = *function.kernel;
  for (int i = 0; i < 3; ++i)
    if (!grid[i] || !block[i])
      return "an extent of 0";
  if (grid[1] > 65535 || grid[2] > 65535 || grid[0] > 2147483647u || block[2] > 64)
    return "more blocks or threads along a dim than the device takes";
  if (uint64_t(block[0]) * block[1] * block[2] > 1024)
    return "more than 1024 threads in a block";
  if (static_cast<int>(dynamicShared) > function.maxDynamicShared)
    return std::to_string(dynamicShared) + " bytes of dynamic shared memory; " +
           std::to_string(function.maxDynamicShared) + " are allowed (cuFuncSetAttribute)";
  const uint32_t *stated = kernel.block;
  bool fits = kernel.exact ? std::equal(stated, stated + 3, block)
                           : block[0] * block[1] * block[2] <= stated[0] * stated[1] * stated[2];
  if (stated[0] && !fits)
    return "a block whose size differs from the one for which the kernel was compiled";
  return "";
}

static CUresult launch(CUfunction function, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
                       uint32_t dynamicShared, CUstream stream, void **params, void **extra) {
  if (CUresult result = enter("cuLaunchKernel"))
    return result;
  const pcrt_host_kernel &kernel = *function->kernel;
  std::string why = extra ? "parameters passed as one block are not supported"
                          : checkLaunch(*function, grid.data(), block.data(), dynamicShared);
  if (!why.empty())
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string("cuLaunchKernel: ") + kernel.name + ": " + why);
  // Copies the parameters, because the caller's may be gone when the kernel runs.
  auto values = std::make_shared<std::vector<std::vector<uint64_t>>>();
  for (uint32_t i = 0; i < kernel.num_params; ++i) {
    auto &value = values->emplace_back((kernel.param_bytes[i] + 7) / 8);
    memcpy(value.data(), params[i], kernel.param_bytes[i]);
  }
  Work work;
  work.name = std::string("kernel ") + kernel.name;
  work.run = [=](std::vector<Access> &found) {
    std::vector<void *> pointers;
    for (auto &value : *values)
      pointers.push_back(value.data());
    KernelLaunch launch;
    launch.module = function->module;
    launch.kernel = function->kernel;
    std::copy(grid.begin(), grid.end(), launch.grid);
    std::copy(block.begin(), block.end(), launch.block);
    launch.dynamicShared = dynamicShared;
    launch.params = pointers.data();
    launch.order = options().seed ? drawNumber() : 0;
    launch.checker = accessChecker();
    if (options().fault.kind == "site")
      launch.skippedSite = options().fault.index;
    std::string fault = pc_run_kernel(launch);
    if (launch.checker)
      for (const AccessRange &range : launch.checker->accesses())
        found.push_back({range.begin, static_cast<int64_t>(range.bytes), range.write});
    return fault;
  };
  return enqueue(stream, std::move(work), "cuLaunchKernel");
}

PC_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                                  unsigned blockY, unsigned blockZ, unsigned shared, CUstream stream, void **params,
                                  void **extra) {
  Lock lock(driverMutex());
  return launch(function, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared, stream, params, extra);
}

PC_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params, void **extra) {
  Lock lock(driverMutex());
  // Attributes are hints to the hardware, except clusters.
  constexpr int clusterDimension = 4;
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (static_cast<int>(c->attrs[i].id) == clusterDimension)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuLaunchKernelEx: clusters are not supported");
  return launch(function, {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
                c->sharedMemBytes, c->hStream, params, extra);
}
