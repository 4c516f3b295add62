//===- Copies.cpp - Copies, memsets, host functions -----------------------===//
// Copies of each direction are items of one engine. An asynchronous copy of memory that is not pinned is refused. Each
// item declares the exact bytes that it reads and writes, for the order checker.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/HostGuard.h"
#include "standin/Memory.h"

#include <algorithm>
#include <cstring>

using namespace pc::standin;

/// The number of writes to host memory by work so far. If the bytes of a copy from pinned memory change between its
/// submission and its run, although no work wrote there, the host has changed them too early.
static uint64_t workOnHost = 0;

static uint64_t checksum(const void *from, size_t width, size_t height, size_t pitch) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t row = 0; row < height; ++row) {
    auto *at = static_cast<const char *>(from) + row * pitch;
    size_t i = 0;
    for (; i + 8 <= width; i += 8) {
      uint64_t word;
      memcpy(&word, at + i, 8);
      sum = (sum ^ word) * 0x100000001b3u;
      sum ^= sum >> 29;
    }
    for (; i < width; ++i)
      sum = (sum ^ static_cast<unsigned char>(at[i])) * 0x100000001b3u;
  }
  return sum;
}

namespace {
/// One side of a copy.
struct Side {
  const void *at;
  size_t pitch;
  enum Kind { Host, Device, Either } kind;

  bool isHost() const { return !isDeviceMemory(at, 1); }
};
} // namespace

static void *writable(const void *at) { return const_cast<void *>(at); }

/// The reason why the side cannot take part in an asynchronous copy; empty if it can.
static std::string checkSide(const Side &side, size_t width, size_t height) {
  int64_t bytes = static_cast<int64_t>((height - 1) * side.pitch + width);
  bool device = isDeviceMemory(side.at, bytes), pinned = isPinnedMemory(side.at, bytes);
  if (side.kind == Side::Device && !device && !pinned)
    return describeMemory(side.at, bytes) + " is not all accessible device memory";
  if (side.kind == Side::Host && !pinned)
    return device ? "device memory instead of host memory"
                  : "pageable host memory, for which the copy would block; pin the memory first";
  if (side.kind == Side::Either && !device && !pinned)
    return describeMemory(side.at, bytes) + " is neither device nor pinned memory";
  return "";
}

static void addAccesses(std::vector<Access> &accesses, const Side &side, size_t width, size_t height, bool write) {
  if (side.pitch == width || height == 1) {
    accesses.push_back({side.at, static_cast<int64_t>(width * height), write});
    return;
  }
  for (size_t row = 0; row < height; ++row)
    accesses.push_back({static_cast<const char *>(side.at) + row * side.pitch, static_cast<int64_t>(width), write});
}

static CUresult copy(const char *function, const char *name, Side to, Side from, size_t width, size_t height,
                     CUstream stream) {
  if (CUresult result = enter(function))
    return result;
  if (width == 0 || height == 0)
    return CUDA_SUCCESS;
  for (const Side *side : {&to, &from})
    if (std::string why = checkSide(*side, width, height); !why.empty())
      return refuse(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": " + why);
  Work work;
  work.name = name;
  addAccesses(work.accesses, from, width, height, false);
  addAccesses(work.accesses, to, width, height, true);
  bool toHost = to.isHost(), fromHost = from.isHost();
  if (options().checkOrder && (fromHost || toHost))
    work.prepare = [=](Item &item) {
      if (toHost && !isPolled(to.at))
        for (size_t row = 0; row < height; ++row)
          guardHostMemory(item.shared_from_this(), static_cast<const char *>(to.at) + row * to.pitch,
                          static_cast<int64_t>(width));
      if (!fromHost)
        return;
      GuardsOff mayLook;
      uint64_t before = checksum(from.at, width, height, from.pitch), written = workOnHost;
      item.check = [=] {
        bool same = written != workOnHost || checksum(from.at, width, height, from.pitch) == before;
        return same ? std::string() : "the host changed " + describeMemory(from.at, width) + " before the copy read it";
      };
    };
  work.run = [=](std::vector<Access> &) {
    for (size_t row = 0; row < height; ++row)
      memmove(static_cast<char *>(writable(to.at)) + row * to.pitch,
              static_cast<const char *>(from.at) + row * from.pitch, width);
    workOnHost += toHost;
    return std::string();
  };
  work.engine = toHost ? Engine::ToHost : fromHost ? Engine::ToDevice : Engine::OnDevice;
  return enqueue(stream, std::move(work), function);
}

static const void *pointer(CUdeviceptr at) { return reinterpret_cast<const void *>(at); }

PC_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  Lock lock(driverMutex());
  return copy(__func__, "copy to device", {pointer(to), bytes, Side::Device}, {from, bytes, Side::Host}, bytes, 1,
              stream);
}

PC_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Lock lock(driverMutex());
  return copy(__func__, "copy to host", {to, bytes, Side::Host}, {pointer(from), bytes, Side::Device}, bytes, 1,
              stream);
}

PC_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Lock lock(driverMutex());
  return copy(__func__, "copy on device", {pointer(to), bytes, Side::Device}, {pointer(from), bytes, Side::Device},
              bytes, 1, stream);
}

PC_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Lock lock(driverMutex());
  return copy(__func__, "copy", {pointer(to), bytes, Side::Either}, {pointer(from), bytes, Side::Either}, bytes, 1,
              stream);
}

/// One side of a two-dimensional copy, from the fields of the descriptor.
static bool makeSide(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t pitch,
                     Side &side) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return false;
  auto *base = static_cast<const char *>(type == CU_MEMORYTYPE_HOST ? host : pointer(device));
  side = {base + y * pitch + x, pitch,
          type == CU_MEMORYTYPE_HOST     ? Side::Host
          : type == CU_MEMORYTYPE_DEVICE ? Side::Device
                                         : Side::Either};
  return true;
}

PC_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
  Lock lock(driverMutex());
  Side to, from;
  size_t toPitch = c->dstPitch ? c->dstPitch : c->WidthInBytes, fromPitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
  if (!makeSide(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, toPitch, to) ||
      !makeSide(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, fromPitch, from))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuMemcpy2DAsync: arrays are not supported");
  if (toPitch < c->WidthInBytes + c->dstXInBytes || fromPitch < c->WidthInBytes + c->srcXInBytes)
    return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemcpy2DAsync: a row is longer than its pitch");
  return copy(__func__, "2D copy", to, from, c->WidthInBytes, c->Height, stream);
}

//===----------------------------------------------------------------------===//
// Synchronous copies: they are ordered only after work for which the host has waited.
//===----------------------------------------------------------------------===//

static CUresult copyNow(const char *function, const void *to, bool toDevice, const void *from, bool fromDevice,
                        size_t bytes) {
  Lock lock(driverMutex());
  if (CUresult result = enterUncaptured(function))
    return result;
  if ((toDevice && !isDeviceMemory(to, bytes)) || (fromDevice && !isDeviceMemory(from, bytes)))
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": this is not accessible device memory");
  auto work = std::make_shared<Work>();
  work->name = function;
  work->accesses = {{from, static_cast<int64_t>(bytes), 0}, {to, static_cast<int64_t>(bytes), 1}};
  work->run = [=](std::vector<Access> &) {
    memmove(writable(to), from, bytes);
    return std::string();
  };
  auto item = std::make_shared<Item>();
  item->work = work;
  submit(item);
  return waitFor(lock, {item});
}

PC_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  return copyNow(__func__, pointer(to), true, from, false, bytes);
}
PC_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  return copyNow(__func__, to, false, pointer(from), true, bytes);
}
PC_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copyNow(__func__, pointer(to), true, pointer(from), true, bytes);
}

//===----------------------------------------------------------------------===//
// Memsets and host functions
//===----------------------------------------------------------------------===//

template <typename Value>
static CUresult fill(const char *function, CUdeviceptr at, Value value, size_t count, CUstream stream) {
  Lock lock(driverMutex());
  if (CUresult result = enter(function))
    return result;
  if (count == 0)
    return CUDA_SUCCESS;
  int64_t bytes = static_cast<int64_t>(count * sizeof(Value));
  if (at % sizeof(Value))
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": the address is not aligned");
  bool pinned = isPinnedMemory(pointer(at), bytes);
  if (!pinned && !isDeviceMemory(pointer(at), bytes))
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": " + describeMemory(pointer(at), bytes) +
                                                " is neither device nor pinned memory");
  Work work;
  work.name = "memset";
  work.accesses = {{pointer(at), bytes, 1}};
  work.fills = true;
  work.run = [=](std::vector<Access> &) {
    if (!takeFresh(pointer(at), bytes) || value != 0)
      std::fill_n(static_cast<Value *>(writable(pointer(at))), count, value);
    workOnHost += pinned;
    return std::string();
  };
  return enqueue(stream, std::move(work), function);
}

PC_EXPORT CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream) {
  return fill<unsigned char>(__func__, at, value, count, stream);
}
PC_EXPORT CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t count, CUstream stream) {
  return fill<unsigned short>(__func__, at, value, count, stream);
}
PC_EXPORT CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream stream) {
  return fill<unsigned>(__func__, at, value, count, stream);
}

PC_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
  Lock lock(driverMutex());
  Work work;
  work.name = "host function";
  work.engine = Engine::Host;
  work.run = [=](std::vector<Access> &) {
    function(argument);
    ++workOnHost;
    return std::string();
  };
  return enqueue(stream, std::move(work), __func__);
}
