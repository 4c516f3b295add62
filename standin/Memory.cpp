//===- Memory.cpp - Device memory and pinned memory of the stand-in -------===//
// Keeps ordered maps of reservations, mappings, allocations and pinned ranges, and tells the order and access checkers
// about every change. cuMemAlloc puts a page without access rights after each allocation.
//===----------------------------------------------------------------------===//
#include "standin/Memory.h"
#include "standin/Capture.h"
#include "standin/Order.h"
#include "standin/Scheduler.h"
#include "standin/kernel/AccessChecker.h"

#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace pc::standin;

namespace {

/// The length and the name of a range of addresses.
struct Range {
  int64_t bytes;
  std::string name;
};
using Ranges = std::map<uintptr_t, Range>; ///< By begin.

/// Physical memory: an anonymous file.
struct Physical {
  int fd;
  int64_t bytes;
  int uses = 1;      ///< The handle itself and its mappings.
  bool fresh = true; ///< Zeros: it was never accessible.
};

/// Reserved addresses to which physical memory is mapped.
struct Mapping {
  int64_t bytes;
  unsigned long long handle;
};

/// All memory that the process has from the stand-in.
struct MemoryState {
  Ranges device, pinned, reserved, named, polled;
  std::map<uintptr_t, Mapping> mapped;
  std::map<uintptr_t, int64_t> fresh; ///< Mapped, zeros, to be poisoned.
  std::map<unsigned long long, Physical> physical;
  std::map<uintptr_t, int64_t> hostAllocations; ///< Allocations by cuMemHostAlloc.
  unsigned long long nextHandle = 1;
  int64_t used = 0;
  int numAllocations = 0;
};

constexpr int64_t granule = int64_t(2) << 20;

} // namespace

static MemoryState &memory() {
  static auto *memory = new MemoryState;
  return *memory;
}

/// The range that holds `at`, or end().
static Ranges::const_iterator find(const Ranges &ranges, uintptr_t at) {
  auto it = ranges.upper_bound(at);
  if (it == ranges.begin())
    return ranges.end();
  --it;
  return at < it->first + it->second.bytes ? it : ranges.end();
}

/// Bytes from `at` to the end of the adjacent ranges that hold it.
static int64_t covered(const Ranges &ranges, uintptr_t at) {
  uintptr_t end = at;
  for (auto it = find(ranges, at); it != ranges.end() && it->first <= end; ++it)
    end = it->first + it->second.bytes;
  return static_cast<int64_t>(end - at);
}

static uintptr_t address(const void *at) { return reinterpret_cast<uintptr_t>(at); }

bool pc::standin::isDeviceMemory(const void *begin, int64_t bytes) {
  return covered(memory().device, address(begin)) >= std::max<int64_t>(bytes, 1);
}

bool pc::standin::isPinnedMemory(const void *begin, int64_t bytes) {
  return covered(memory().pinned, address(begin)) >= std::max<int64_t>(bytes, 1);
}

int64_t pc::standin::bytesFrom(const void *begin) {
  int64_t device = covered(memory().device, address(begin));
  return device ? device : covered(memory().pinned, address(begin));
}

std::string pc::standin::describeMemory(const void *begin, int64_t bytes) {
  auto describe = [&](const Ranges &ranges) -> std::string {
    auto it = find(ranges, address(begin));
    if (it == ranges.end())
      return "";
    int64_t lo = static_cast<int64_t>(address(begin) - it->first);
    return "bytes [" + std::to_string(lo) + ", " + std::to_string(lo + bytes) + ") of " + it->second.name;
  };
  for (const Ranges *ranges : {&memory().named, &memory().reserved, &memory().device, &memory().pinned})
    if (std::string text = describe(*ranges); !text.empty())
      return text;
  return std::to_string(bytes) + " bytes at " + std::to_string(address(begin));
}

PC_EXPORT void pc_standin_name_memory(const void *begin, int64_t bytes, const char *name) {
  Lock lock(driverMutex());
  memory().named[address(begin)] = {bytes, name};
}

bool pc::standin::isPolled(const void *at) { return covered(memory().polled, address(at)) > 0; }

PC_EXPORT void pc_standin_polled(const void *begin, int64_t bytes) {
  Lock lock(driverMutex());
  memory().polled[address(begin)] = {bytes, "polled memory"};
}

/// Refuses calls that are not allowed while this thread captures, calls after a report, and bad arguments.
#define ENTER()                                                                                                        \
  Lock lock(driverMutex());                                                                                            \
  if (CUresult entered = enterUncaptured(__func__))                                                                    \
  return entered
#define REQUIRE(condition, why)                                                                                        \
  if (!(condition))                                                                                                    \
  return refuse(CUDA_ERROR_INVALID_VALUE, std::string(__func__) + ": " + (why))

AccessChecker *pc::standin::accessChecker() {
  static AccessChecker *checker = []() -> AccessChecker * {
    if (!options().checkKernels && !options().checkOrder)
      return nullptr;
    auto *made = new AccessChecker;
    made->describe = [](const void *at) { return describeMemory(at, 1); };
    return made;
  }();
  return checker;
}

void pc::standin::setWritten(const void *begin, int64_t bytes) {
  if (AccessChecker *checker = accessChecker())
    checker->setState(begin, bytes, ByteState::Written);
}

void pc::standin::poisonFresh() {
  for (auto [begin, bytes] : std::exchange(memory().fresh, {}))
    memset(reinterpret_cast<void *>(begin), 0xff, bytes);
}

bool pc::standin::takeFresh(const void *begin, int64_t bytes) {
  auto it = memory().fresh.find(address(begin));
  bool whole = it != memory().fresh.end() && it->second == bytes;
  if (whole)
    memory().fresh.erase(it);
  else
    poisonFresh();
  return whole;
}

/// Poisons memory that has become accessible (with `fresh`, later), and forgets its earlier accesses.
static void openMemory(uintptr_t begin, int64_t bytes, bool fresh = false) {
  void *at = reinterpret_cast<void *>(begin);
  if (fresh)
    memory().fresh[begin] = bytes;
  else
    memset(at, 0xff, bytes);
  forgetAccesses(at, bytes);
  if (AccessChecker *checker = accessChecker()) {
    checker->addRegion(at, bytes);
    checker->setState(at, bytes, ByteState::Allocated);
  }
}

/// Declares memory inaccessible.
static void closeMemory(uintptr_t begin, int64_t bytes) {
  void *at = reinterpret_cast<void *>(begin);
  memory().fresh.erase(begin);
  forgetAccesses(at, bytes);
  if (AccessChecker *checker = accessChecker())
    checker->removeRegion(at);
}

static CUresult outOfMemory(const char *function, int64_t bytes) {
  return refuse(CUDA_ERROR_OUT_OF_MEMORY, std::string(function) + ": " + std::to_string(bytes) +
                                              " bytes in addition to " + std::to_string(memory().used) + " of " +
                                              std::to_string(options().memoryBytes));
}

PC_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER();
  *total = options().memoryBytes;
  *free = options().memoryBytes - memory().used;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  ENTER();
  REQUIRE(at && bytes, "the size is 0");
  if (static_cast<int64_t>(bytes) > options().memoryBytes - memory().used)
    return outOfMemory(__func__, bytes);
  // A page without access rights follows each allocation, whose end is as near to it as the alignment allows.
  int64_t page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
  auto *base = static_cast<char *>(mmap(nullptr, pages + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (base == MAP_FAILED || mprotect(base, pages, PROT_READ | PROT_WRITE))
    return outOfMemory(__func__, bytes);
  uintptr_t begin = address(base) + (pages - bytes) / 256 * 256;
  memory().used += bytes;
  memory().device[begin] = {static_cast<int64_t>(bytes),
                            "device allocation " + std::to_string(memory().numAllocations++)};
  openMemory(begin, bytes);
  *at = begin;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemFree_v2(CUdeviceptr at) {
  ENTER();
  auto it = memory().device.find(at);
  REQUIRE(it != memory().device.end() && !memory().mapped.count(at), "the address is not the start of an allocation");
  if (CUresult result = waitForAll(lock)) // as the driver does
    return result;
  int64_t bytes = it->second.bytes, page = sysconf(_SC_PAGESIZE);
  closeMemory(at, bytes);
  uintptr_t base = at / page * page;
  munmap(reinterpret_cast<void *>(base), (at + bytes - base + page - 1) / page * page + page);
  memory().used -= bytes;
  memory().device.erase(it);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
  ENTER();
  auto it = find(memory().device, at);
  if (it == memory().device.end())
    return refuse(CUDA_ERROR_NOT_FOUND, "cuMemGetAddressRange: the address is not device memory");
  if (base)
    *base = it->first;
  if (bytes)
    *bytes = it->second.bytes;
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Pinned memory
//===----------------------------------------------------------------------===//

static void pin(uintptr_t begin, int64_t bytes) {
  memory().pinned[begin] = {bytes, "pinned memory " + std::to_string(memory().numAllocations++)};
  forgetAccesses(reinterpret_cast<void *>(begin), bytes);
  if (AccessChecker *checker = accessChecker()) { // the host may have written all of it
    checker->addRegion(reinterpret_cast<void *>(begin), bytes);
    setWritten(reinterpret_cast<void *>(begin), bytes);
  }
}

PC_EXPORT CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned) {
  ENTER();
  REQUIRE(at && bytes, "the size is 0");
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return outOfMemory(__func__, bytes);
  memset(base, 0xff, bytes);
  memory().hostAllocations[address(base)] = bytes;
  pin(address(base), bytes);
  *at = base;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemFreeHost(void *at) {
  ENTER();
  auto it = memory().hostAllocations.find(address(at));
  REQUIRE(it != memory().hostAllocations.end(), "the memory was not allocated by cuMemHostAlloc");
  if (CUresult result = waitForAll(lock))
    return result;
  closeMemory(address(at), it->second);
  memory().polled.erase(memory().polled.lower_bound(address(at)),
                        memory().polled.lower_bound(address(at) + it->second));
  munmap(at, it->second);
  memory().pinned.erase(it->first);
  memory().hostAllocations.erase(it);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned) {
  ENTER();
  REQUIRE(at && bytes, "the size is 0");
  if (covered(memory().pinned, address(at)))
    return refuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister: the memory is pinned already");
  pin(address(at), bytes);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemHostUnregister(void *at) {
  ENTER();
  if (memory().hostAllocations.count(address(at)) || !memory().pinned.count(address(at)))
    return refuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister: the memory is not registered");
  if (CUresult result = waitForAll(lock))
    return result;
  auto it = memory().pinned.find(address(at));
  closeMemory(it->first, it->second.bytes);
  memory().pinned.erase(it);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned) {
  ENTER();
  REQUIRE(covered(memory().pinned, address(host)), "the memory is not pinned");
  *device = address(host);
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Virtual memory management
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                                 CUmemAllocationGranularity_flags) {
  ENTER();
  REQUIRE(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED, "only pinned allocations are supported");
  *bytes = granule;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr,
                                       unsigned long long) {
  ENTER();
  REQUIRE(bytes && bytes % granule == 0, "the size is not a multiple of the granularity");
  REQUIRE((alignment & (alignment - 1)) == 0, "the alignment is not a power of two");
  int64_t align = std::max<int64_t>(alignment, granule);
  void *base = mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return outOfMemory(__func__, bytes);
  uintptr_t begin = (address(base) + align - 1) / align * align; // the rest stays reserved
  memory().reserved[begin] = {static_cast<int64_t>(bytes),
                              "device reservation " + std::to_string(memory().numAllocations++)};
  *at = begin;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  ENTER();
  auto it = memory().reserved.find(at);
  REQUIRE(it != memory().reserved.end() && it->second.bytes == static_cast<int64_t>(bytes),
          "the address range is not a reservation");
  auto mapped = memory().mapped.lower_bound(at);
  REQUIRE(mapped == memory().mapped.end() || mapped->first >= at + bytes, "memory is mapped there already");
  munmap(reinterpret_cast<void *>(at), bytes);
  memory().reserved.erase(it);
  return CUDA_SUCCESS;
}

static void release(unsigned long long handle) {
  auto it = memory().physical.find(handle);
  if (--it->second.uses > 0)
    return;
  close(it->second.fd);
  memory().used -= it->second.bytes;
  memory().physical.erase(it);
}

PC_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long) {
  ENTER();
  REQUIRE(bytes && bytes % granule == 0, "the size is not a multiple of the granularity");
  REQUIRE(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
              properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties->location.id >= 0 &&
              properties->location.id < options().devices,
          "only pinned memory of a device is supported");
  if (static_cast<int64_t>(bytes) > options().memoryBytes - memory().used)
    return outOfMemory(__func__, bytes);
  int fd = memfd_create("pc_standin", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, bytes))
    return outOfMemory(__func__, bytes);
  *handle = memory().nextHandle++;
  memory().physical[*handle] = {fd, static_cast<int64_t>(bytes)};
  memory().used += bytes;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER();
  REQUIRE(memory().physical.count(handle), "this is not a handle");
  release(handle);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long) {
  ENTER();
  REQUIRE(bytes && bytes % granule == 0 && at % granule == 0 && offset == 0,
          "the size is not a multiple of the granularity");
  REQUIRE(covered(memory().reserved, at) >= static_cast<int64_t>(bytes),
          "the address range is not inside a reservation");
  auto physical = memory().physical.find(handle);
  REQUIRE(physical != memory().physical.end() && physical->second.bytes >= static_cast<int64_t>(bytes),
          "there is no handle of that size");
  auto next = memory().mapped.lower_bound(at);
  bool overlaps = next != memory().mapped.end() && next->first < at + bytes;
  if (next != memory().mapped.begin())
    overlaps |= std::prev(next)->first + std::prev(next)->second.bytes > at;
  if (overlaps)
    return refuse(CUDA_ERROR_ALREADY_MAPPED, "cuMemMap: memory is mapped there already");
  if (mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->second.fd, 0) ==
      MAP_FAILED)
    return refuse(CUDA_ERROR_OPERATING_SYSTEM, "cuMemMap: mmap failed");
  ++physical->second.uses;
  memory().mapped[at] = {static_cast<int64_t>(bytes), handle};
  return CUDA_SUCCESS;
}

/// Calls `body` with each mapping that lies in [at, at + bytes); false if they leave gaps.
template <typename Body> static bool forMappings(uintptr_t at, int64_t bytes, Body body) {
  uintptr_t end = at + bytes;
  while (at < end) {
    auto it = memory().mapped.find(at);
    if (it == memory().mapped.end() || at + it->second.bytes > end)
      return false;
    at += it->second.bytes;
    body(it);
  }
  return true;
}

PC_EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *descs, size_t count) {
  ENTER();
  bool accessible = false;
  for (size_t i = 0; i < count; ++i)
    accessible |= descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool complete = forMappings(at, bytes, [&](auto it) {
    uintptr_t begin = it->first;
    mprotect(reinterpret_cast<void *>(begin), it->second.bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (accessible && !memory().device.count(begin)) {
      memory().device[begin] = {it->second.bytes, "mapped device memory"};
      Physical &physical = memory().physical.at(it->second.handle);
      openMemory(begin, it->second.bytes, std::exchange(physical.fresh, false));
    } else if (!accessible) {
      if (memory().device.erase(begin))
        closeMemory(begin, it->second.bytes);
    }
  });
  REQUIRE(complete, "the address range does not consist of whole mappings");
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  ENTER();
  if (CUresult result = waitForAll(lock))
    return result;
  bool complete = forMappings(at, bytes, [&](auto it) {
    void *begin = reinterpret_cast<void *>(it->first);
    mmap(begin, it->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (memory().device.erase(it->first))
      closeMemory(it->first, it->second.bytes);
    release(it->second.handle);
    memory().mapped.erase(it);
  });
  REQUIRE(complete, "the address range does not consist of whole mappings");
  return CUDA_SUCCESS;
}
