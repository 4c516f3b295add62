//===- Fake.cpp - The smallest possible CUDA device -----------------------===//
// A library with the functions of the driver and cuBLASLt that the runtime calls. Everything runs on host memory before
// a call returns; a captured graph is a list of functions. FAKE_DRIVER, FAKE_CUBLASLT, FAKE_MAJOR, FAKE_DEVICES,
// FAKE_MEMORY, FAKE_INIT, FAKE_RDMA (of network cards) and FAKE_HANDLES (memory that other processes can open) set the
// versions and properties that it reports. With FAKE_KERNELS=1 it accepts any image; with FAKE_FAIL=N, launch N fails
// like a faulty kernel. The stand-in finds errors in programs; this library finds errors in the runtime's calls.
//===----------------------------------------------------------------------===//
#include "cuda/CublasLt.h"
#include "pcrt/host_image.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace pcrt::cuda;

// Declares every function with the runtime's types, so that a definition that differs does not compile.
#define DECLARE(result, symbol, ...) extern "C" __attribute__((visibility("default"))) result symbol(__VA_ARGS__);
PCRT_DRIVER_SYMBOLS(DECLARE)
PCRT_CUBLASLT_SYMBOLS(DECLARE)
#ifndef FAKE_GPU // the other one does not say that it stands in: the runtime takes it for a GPU
extern "C" __attribute__((visibility("default"))) const pc_standin_functions *pc_standin_hook() {
  static const pc_standin_functions none{};
  return &none;
}
#endif

namespace pcrt::cuda {
struct ContextObject {};
struct StreamObject {
  bool capturing = false;
};
struct EventObject {
  double time = 0;
};
struct GraphObject {
  std::vector<std::function<void()>> nodes;
};
struct GraphExecObject : GraphObject {};
struct ModuleObject {
  void *handle;
  const pcrt_host_module *table;
};
struct FunctionObject {
  const pcrt_host_kernel *kernel;
};
} // namespace pcrt::cuda

static ContextObject theContext;
static thread_local Context current;
static thread_local GraphObject *captured; ///< The graph that this thread captures; ranks may be threads.
static std::atomic<Result> sticky = Success;
constexpr Result ErrorNotSupported = 801;

/// Ranges of memory, by their start addresses.
class Ranges {
public:
  void add(Address base, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    ranges[base] = bytes;
    total += bytes;
  }
  void remove(Address base) {
    std::lock_guard<std::mutex> lock(mutex);
    total -= ranges[base];
    ranges.erase(base);
  }
  bool contains(Address at, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    auto next = ranges.upper_bound(at);
    return next != ranges.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
  }
  std::atomic<size_t> total{0};

private:
  std::mutex mutex;
  std::map<Address, size_t> ranges;
};
static Ranges device, pinned;

static int number(const char *variable, int unset) {
  const char *value = getenv(variable);
  return value ? atoi(value) : unset;
}

static Result complain(const char *what) {
  fprintf(stderr, "fake: %s\n", what);
  return 1;
}

static double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

template <typename F> static Result enqueue(Stream stream, F &&f) {
  if (sticky)
    return sticky;
  if (!current)
    return complain("no context is current");
  if (!stream)
    return complain("the null stream");
  if (captured && !stream->capturing)
    return complain("a call on a stream that is not captured, during a capture");
  if (stream->capturing)
    captured->nodes.push_back(f);
  else
    f();
  return Success;
}

/// Returns the error of a call that a capture forbids, or an earlier error.
static Result outsideCapture() {
  return sticky ? sticky.load() : captured ? complain("not allowed during a capture") : Success;
}

static bool onDevice(Address at, size_t bytes) {
  return device.contains(at, bytes) || complain("an address that is not mapped") == Success;
}

static bool isPinned(const void *at, size_t bytes) {
  return pinned.contains(addressOf(at), bytes) || complain("host memory that is not pinned") == Success;
}

Result cuInit(unsigned) { return number("FAKE_INIT", 0); }
Result cuDriverGetVersion(int *version) {
  *version = number("FAKE_DRIVER", 13000);
  return Success;
}
Result cuGetErrorName(Result error, const char **text) {
  *text = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return Success;
}
Result cuGetErrorString(Result, const char **text) {
  *text = nullptr;
  return Success;
}
Result cuDeviceGetCount(int *count) {
  *count = number("FAKE_DEVICES", 8);
  return Success;
}
Result cuDeviceGet(Ordinal *found, int ordinal) {
  *found = ordinal;
  return Success;
}
Result cuDeviceGetName(char *name, int bytes, Ordinal) {
  snprintf(name, size_t(bytes), "fake device");
  return Success;
}
Result cuDeviceGetPCIBusId(char *id, int bytes, Ordinal ordinal) {
  snprintf(id, size_t(bytes), "0000:%02d:00.0", ordinal);
  return Success;
}
Result cuDeviceGetAttribute(int *value, int attribute, Ordinal) {
  *value = attribute == AttributeMajor             ? number("FAKE_MAJOR", 9)
           : attribute == AttributeMinor           ? 0
           : attribute == AttributeMultiprocessors ? 132
           : attribute == AttributeVirtualMemory   ? 1
           : attribute == AttributeDirectRdma      ? number("FAKE_RDMA", 1) > 0
                                                   : 227 << 10;
  return Success;
}
Result cuDeviceTotalMem_v2(size_t *bytes, Ordinal) {
  *bytes = size_t(1) << 30;
  return Success;
}
Result cuDevicePrimaryCtxRetain(Context *context, Ordinal) {
  *context = &theContext;
  return Success;
}
Result cuDevicePrimaryCtxRelease_v2(Ordinal) { return Success; }
Result cuCtxSetCurrent(Context context) {
  current = context;
  return Success;
}
Result cuCtxGetCurrent(Context *context) {
  *context = current;
  return Success;
}
Result cuCtxSynchronize() { return outsideCapture(); }
Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = *greatest = 0;
  return Success;
}
Result cuMemGetInfo_v2(size_t *unused, size_t *total) {
  *total = size_t(number("FAKE_MEMORY", 1 << 30));
  *unused = *total - device.total;
  return Success;
}
Result cuMemHostAlloc(void **at, size_t bytes, unsigned) {
  *at = malloc(bytes);
  pinned.add(addressOf(*at), bytes);
  return outsideCapture();
}
Result cuMemFreeHost(void *at) {
  pinned.remove(addressOf(at));
  free(at);
  return Success;
}
Result cuMemHostRegister_v2(void *at, size_t bytes, unsigned) {
  pinned.add(addressOf(at), bytes);
  return Success;
}
Result cuMemHostUnregister(void *at) {
  pinned.remove(addressOf(at));
  return Success;
}
Result cuMemGetAllocationGranularity(size_t *bytes, const AllocationProperties *properties, int) {
  if (properties->type != AllocationPinned)
    return complain("memory of another type");
  bool opens = properties->handleTypes == HandlePosixFile;
  *bytes = opens ? 2 << 20 : 4 << 20;
  return !opens || number("FAKE_HANDLES", 1) ? Success : ErrorNotSupported;
}
Result cuMemAddressReserve(Address *at, size_t bytes, size_t, Address, unsigned long long) {
  *at = addressOf(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return outsideCapture();
}
Result cuMemAddressFree(Address at, size_t bytes) { return munmap(reinterpret_cast<void *>(at), bytes) ? 1 : Success; }
Result cuMemCreate(unsigned long long *handle, size_t bytes, const AllocationProperties *properties,
                   unsigned long long) {
  *handle = bytes;
  int reaches = number("FAKE_RDMA", 1); // if 2, the driver reports support but refuses such memory
  if (reaches == 2 && properties->directRdma)
    return ErrorNotSupported;
  if (reaches != 2 && properties->directRdma != reaches)
    return complain("memory for network cards where they reach none, or other where they do");
  bool opens = properties->handleTypes == HandlePosixFile;
  if (opens && !number("FAKE_HANDLES", 1))
    return ErrorNotSupported;
  return bytes % (opens ? 2 << 20 : 4 << 20) ? complain("half a granule") : outsideCapture();
}
Result cuMemRelease(unsigned long long) { return Success; }
Result cuMemMap(Address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  return bytes == handle ? Success : complain("a mapping of another size");
}
Result cuMemUnmap(Address at, size_t) {
  device.remove(at);
  return Success;
}
Result cuMemSetAccess(Address at, size_t bytes, const AccessDescription *access, size_t count) {
  if (count != 1 || access->flags != AccessReadWrite)
    return complain("no access");
  mprotect(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE);
  memset(reinterpret_cast<void *>(at), 0xff, bytes);
  device.add(at, bytes);
  return Success;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream stream) {
  if (!onDevice(to, bytes) || !isPinned(from, bytes))
    return 1;
  return enqueue(stream, [=] { memcpy(reinterpret_cast<void *>(to), from, bytes); });
}
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream stream) {
  if (!onDevice(from, bytes) || !isPinned(to, bytes))
    return 1;
  return enqueue(stream, [=] { memcpy(to, reinterpret_cast<void *>(from), bytes); });
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream stream) {
  if (!onDevice(to, bytes) || !onDevice(from, bytes))
    return 1;
  return enqueue(stream, [=] { memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes); });
}
Result cuMemcpy2DAsync_v2(const Copy2D *copy, Stream stream) {
  Copy2D c = *copy;
  if (c.fromType != MemoryDevice || c.toType != MemoryDevice || c.width > c.fromPitch || c.width > c.toPitch)
    return complain("a copy of rows");
  return enqueue(stream, [=] {
    for (size_t row = 0; row < c.height; ++row)
      memcpy(reinterpret_cast<char *>(c.toDevice) + row * c.toPitch,
             reinterpret_cast<char *>(c.fromDevice) + row * c.fromPitch, c.width);
  });
}
Result cuMemsetD8Async(Address at, unsigned char value, size_t count, Stream stream) {
  if (!onDevice(at, count))
    return 1;
  return enqueue(stream, [=] { memset(reinterpret_cast<void *>(at), value, count); });
}
Result cuMemsetD32Async(Address at, unsigned value, size_t count, Stream stream) {
  if (!onDevice(at, 4 * count))
    return 1;
  return enqueue(stream, [=] {
    for (size_t i = 0; i < count; ++i)
      reinterpret_cast<unsigned *>(at)[i] = value;
  });
}
Result cuModuleLoadDataEx(Module *module, const void *image, unsigned, int *, void **) {
  auto *bytes = static_cast<const char *>(image);
  static const pcrt_host_module noKernels = {};
  if (memcmp(bytes, "\177ELF", 4) != 0) {
    *module = new ModuleObject{nullptr, &noKernels};
    return number("FAKE_KERNELS", 0) ? Success : ErrorNoBinaryForDevice;
  }
  uint64_t headers;
  uint16_t entry, count;
  memcpy(&headers, bytes + 40, 8);
  memcpy(&entry, bytes + 58, 2);
  memcpy(&count, bytes + 60, 2);
  size_t size = headers + size_t(entry) * count;
  char path[] = "/tmp/pc-fake-XXXXXX"; // a memfd needs /proc, which may be missing
  int fd = mkstemp(path);
  if (write(fd, bytes, size) != ssize_t(size))
    return 1;
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  close(fd);
  if (!handle)
    return complain(dlerror());
  *module = new ModuleObject{handle, static_cast<const pcrt_host_module *>(dlsym(handle, "pc_standin_module"))};
  return outsideCapture();
}
Result cuModuleUnload(Module module) {
  if (module->handle)
    dlclose(module->handle);
  delete module;
  return Success;
}
Result cuModuleGetFunction(Function *function, Module module, const char *name) {
  for (uint32_t i = 0; i < module->table->num_kernels; ++i)
    if (!strcmp(module->table->kernels[i].name, name)) {
      *function = new FunctionObject{&module->table->kernels[i]};
      return Success;
    }
  *function = new FunctionObject{nullptr};
  return number("FAKE_KERNELS", 0) ? Success : 500;
}
Result cuFuncGetAttribute(int *value, int, Function) {
  *value = 0;
  return Success;
}
Result cuFuncSetAttribute(Function, int, int) { return Success; }
Result cuLaunchKernel(Function function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      Stream stream, void **parameters, void **) {
  std::vector<void *> values;
  for (uint32_t i = 0; i < function->kernel->num_params; ++i) {
    values.push_back(*static_cast<void **>(parameters[i]));
    if (!onDevice(addressOf(values.back()), 4))
      return 1;
  }
  return enqueue(stream, [=] {
    static std::atomic<int> launches = 0;
    if (launches++ == number("FAKE_FAIL", -1))
      sticky = 700;
    std::vector<void *> pointers;
    for (void *const &value : values)
      pointers.push_back(const_cast<void **>(&value));
    function->kernel->entry(pointers.data());
  });
}
Result cuLaunchHostFunc(Stream stream, HostFunction function, void *argument) {
  return enqueue(stream, [=] { function(argument); });
}
Result cuStreamCreateWithPriority(Stream *stream, unsigned, int) {
  *stream = new StreamObject;
  return outsideCapture();
}
Result cuStreamDestroy_v2(Stream stream) {
  delete stream;
  return Success;
}
Result cuStreamSynchronize(Stream) { return outsideCapture(); }
Result cuStreamQuery(Stream) { return outsideCapture(); }
Result cuStreamWaitEvent(Stream stream, Event, unsigned) {
  if (captured)
    stream->capturing = true;
  return sticky;
}
Result cuStreamBeginCapture_v2(Stream stream, int) {
  captured = new GraphObject;
  stream->capturing = true;
  return sticky;
}
Result cuStreamEndCapture(Stream stream, Graph *graph) {
  stream->capturing = false;
  *graph = captured;
  captured = nullptr;
  return sticky;
}
Result cuStreamIsCapturing(Stream stream, int *status) {
  *status = stream->capturing;
  return Success;
}
Result cuEventCreate(Event *event, unsigned) {
  *event = new EventObject;
  return outsideCapture();
}
Result cuEventDestroy_v2(Event event) {
  delete event;
  return Success;
}
Result cuEventRecord(Event event, Stream) {
  event->time = seconds();
  return sticky;
}
Result cuEventQuery(Event) { return sticky; }
Result cuEventSynchronize(Event) { return outsideCapture(); }
Result cuEventElapsedTime_v2(float *milliseconds, Event start, Event end) {
  *milliseconds = float((end->time - start->time) * 1e3);
  return sticky;
}
Result cuGraphInstantiateWithFlags(GraphExec *exec, Graph graph, unsigned long long) {
  *exec = new GraphExecObject{*graph};
  return outsideCapture();
}
Result cuGraphUpload(GraphExec, Stream) { return outsideCapture(); }
Result cuGraphLaunch(GraphExec exec, Stream) {
  for (auto &node : exec->nodes)
    if (!sticky)
      node();
  return sticky;
}
Result cuGraphExecDestroy(GraphExec exec) {
  delete exec;
  return Success;
}
Result cuGraphDestroy(Graph graph) {
  delete graph;
  return Success;
}

//===----------------------------------------------------------------------===//
// cuBLASLt: plain loops over column-major matrices
//===----------------------------------------------------------------------===//

namespace pcrt::cuda {
struct BlasHandleObject {};
struct MatmulDescObject {
  std::map<int, uint64_t> attributes;
};
struct MatrixLayoutObject {
  int type;
  int64_t rows, columns, leading, batch = 1, batchStride = 0;
};
struct MatmulPreferenceObject {};
} // namespace pcrt::cuda

static float at(const void *base, int type, int64_t index) {
  if (type == Real32F)
    return static_cast<const float *>(base)[index];
  uint32_t bits = uint32_t(static_cast<const uint16_t *>(base)[index]) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

size_t cublasLtGetVersion() { return size_t(number("FAKE_CUBLASLT", 130100)); }
size_t cublasLtGetCudartVersion() { return 13000; }
const char *cublasLtGetStatusString(BlasStatus status) { return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "ok"; }
BlasStatus cublasLtCreate(BlasHandle *handle) {
  *handle = new BlasHandleObject;
  return 0;
}
BlasStatus cublasLtDestroy(BlasHandle handle) {
  delete handle;
  return 0;
}
BlasStatus cublasLtMatmulDescCreate(MatmulDesc *desc, int, int) {
  *desc = new MatmulDescObject;
  return 0;
}
BlasStatus cublasLtMatmulDescDestroy(MatmulDesc desc) {
  delete desc;
  return 0;
}
BlasStatus cublasLtMatmulDescSetAttribute(MatmulDesc desc, int attribute, const void *value, size_t bytes) {
  uint64_t &to = desc->attributes[attribute] = 0;
  memcpy(&to, value, bytes);
  return 0;
}
BlasStatus cublasLtMatrixLayoutCreate(MatrixLayout *layout, int type, uint64_t rows, uint64_t columns,
                                      int64_t leading) {
  *layout = new MatrixLayoutObject{type, int64_t(rows), int64_t(columns), leading};
  return leading < int64_t(rows) ? 7 : 0;
}
BlasStatus cublasLtMatrixLayoutDestroy(MatrixLayout layout) {
  delete layout;
  return 0;
}
BlasStatus cublasLtMatrixLayoutSetAttribute(MatrixLayout layout, int attribute, const void *value, size_t) {
  if (attribute == LayoutBatchCount)
    layout->batch = *static_cast<const int32_t *>(value);
  else
    layout->batchStride = *static_cast<const int64_t *>(value);
  return 0;
}
BlasStatus cublasLtMatmulPreferenceCreate(MatmulPreference *preference) {
  *preference = new MatmulPreferenceObject;
  return 0;
}
BlasStatus cublasLtMatmulPreferenceDestroy(MatmulPreference preference) {
  delete preference;
  return 0;
}
BlasStatus cublasLtMatmulPreferenceSetAttribute(MatmulPreference, int, const void *, size_t) { return 0; }
BlasStatus cublasLtMatmulAlgoGetHeuristic(BlasHandle, MatmulDesc, MatrixLayout, MatrixLayout, MatrixLayout,
                                          MatrixLayout, MatmulPreference, int wanted, MatmulHeuristic *results,
                                          int *count) {
  *count = std::min(wanted, 3);
  for (int i = 0; i < *count; ++i)
    results[i] = MatmulHeuristic{{{uint64_t(i + 1)}}, 0, 0, 1, {}};
  return 0;
}
BlasStatus cublasLtMatmulAlgoCheck(BlasHandle, MatmulDesc, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout,
                                   const MatmulAlgorithm *, MatmulHeuristic *result) {
  *result = {};
  return 0;
}
BlasStatus cublasLtMatmul(BlasHandle, MatmulDesc desc, const void *alpha, const void *a, MatrixLayout aLayout,
                          const void *b, MatrixLayout bLayout, const void *beta, const void *c, MatrixLayout, void *d,
                          MatrixLayout dLayout, const MatmulAlgorithm *, void *, size_t, Stream stream) {
  bool transposeA = desc->attributes[DescTransposeA] == OperationT;
  bool transposeB = desc->attributes[DescTransposeB] == OperationT;
  bool hasBias = desc->attributes[DescEpilogue] == EpilogueBias;
  auto *bias = reinterpret_cast<const float *>(desc->attributes[DescBiasPointer]);
  float scale = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
  MatrixLayoutObject la = *aLayout, lb = *bLayout, ld = *dLayout;
  int64_t k = transposeA ? la.rows : la.columns;
  if (c != d || (transposeA ? la.columns : la.rows) != ld.rows || (transposeB ? lb.rows : lb.columns) != ld.columns ||
      (transposeB ? lb.columns : lb.rows) != k)
    return 7;
  return enqueue(stream, [=] {
    for (int64_t batch = 0; batch < ld.batch; ++batch)
      for (int64_t column = 0; column < ld.columns; ++column)
        for (int64_t row = 0; row < ld.rows; ++row) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i)
            sum += double(at(a, la.type,
                             batch * la.batchStride + (transposeA ? i + row * la.leading : row + i * la.leading))) *
                   at(b, lb.type,
                      batch * lb.batchStride + (transposeB ? column + i * lb.leading : i + column * lb.leading));
          int64_t index = batch * ld.batchStride + row + column * ld.leading;
          float value = scale * float(sum) + (keep != 0 ? keep * at(d, ld.type, index) : 0) + (hasBias ? bias[row] : 0);
          if (ld.type == Real32F)
            static_cast<float *>(d)[index] = value;
          else {
            uint32_t bits;
            memcpy(&bits, &value, 4);
            static_cast<uint16_t *>(d)[index] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
          }
        }
  });
}
