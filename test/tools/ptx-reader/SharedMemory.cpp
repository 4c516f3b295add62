//===- SharedMemory.cpp - A block's shared memory, with checks ------------===//
// A read and a write, or two writes, by different threads need a barrier of the block between them, or one of their
// warp (bar.warp.sync).
//===----------------------------------------------------------------------===//
#include "SharedMemory.h"

#include <algorithm>

using namespace pc::ptx;

SharedMemory::SharedMemory(const Kernel &kernel, uint64_t dynamicBytes)
    : bytes(kernel.dynamicShared + dynamicBytes, 0xff), granules((bytes.size() + 1) / 2), fences(1024) {
  auto declare = [&](uint64_t address, uint64_t count) {
    for (uint64_t i = address / 2; i < (address + count + 1) / 2; ++i)
      granules[i].inVariable = true;
  };
  for (const SharedVariable &variable : kernel.shared)
    declare(variable.address, variable.bytes);
  declare(kernel.dynamicShared, dynamicBytes);
}

static bool isOrdered(const When &before, const When &now) {
  if (before.thread < 0 || before.thread == now.thread || before.block < now.block)
    return true;
  return before.thread / warpSize == now.thread / warpSize && before.warp < now.warp;
}

void SharedMemory::check(Access kind, Granule &granule, uint64_t address, const When &now) {
  auto fail = [&](const std::string &why) {
    throw Fault{why + " at shared address " + std::to_string(address) + ", thread " + std::to_string(now.thread)};
  };
  auto by = [](const When &when) { return " by thread " + std::to_string(when.thread); };
  if (!granule.inVariable)
    fail("access outside of all variables");
  if (granule.inFlight)
    fail("access to bytes that cp.async may still write");
  if (!isOrdered(granule.written, now))
    fail("no barrier after the write" + by(granule.written));
  if (kind == Access::Write) {
    for (const When &read : {granule.read, granule.readElsewhere})
      if (!isOrdered(read, now))
        fail("no barrier after the read" + by(read));
    granule.written = now;
    granule.writtenAt = fenceTime;
    return;
  }
  if (granule.written.thread < 0)
    fail("read of bytes that were never written");
  if (kind == Access::ProxyRead) {
    const Fences &fence = fences[granule.written.thread];
    if ((fence.block < now.block ? fence.time : fence.timeBefore) <= granule.writtenAt)
      fail("no fence.proxy.async with a barrier after it since the write" + by(granule.written));
  }
  if (granule.read.thread >= 0 && granule.read.thread / warpSize != now.thread / warpSize)
    granule.readElsewhere = granule.read;
  granule.read = now;
}

uint8_t *SharedMemory::access(Access kind, uint64_t address, int count, const When &now) {
  if (address % count)
    throw Fault{"misaligned access of " + std::to_string(count) + " bytes at shared address " +
                std::to_string(address)};
  if (address >= bytes.size() || count > int64_t(bytes.size() - address))
    throw Fault{"access outside of shared memory at address " + std::to_string(address) + ", thread " +
                std::to_string(now.thread)};
  for (uint64_t i = address / 2; i < (address + count + 1) / 2; ++i)
    check(kind, granules[i], 2 * i, now);
  return &bytes[address];
}

void SharedMemory::startCopy(uint64_t address, int count, const When &now) {
  access(Access::Write, address, count, now);
  for (uint64_t i = address / 2; i < (address + count) / 2; ++i)
    granules[i].inFlight = true;
}

void SharedMemory::endCopy(uint64_t address, int count, const When &now) {
  for (uint64_t i = address / 2; i < (address + count) / 2; ++i)
    granules[i].inFlight = false;
  access(Access::Write, address, count, now);
}

void SharedMemory::fenceProxy(const When &now) {
  Fences &fence = fences[now.thread];
  if (fence.block < now.block)
    fence.timeBefore = fence.time;
  fence.time = ++fenceTime;
  fence.block = now.block;
}
