//===- Carries.cpp - The arenas in memory of the host and on disk ---------===//
// Values that are offloaded from the device are in page-locked memory, from which the copy engines read and write, or
// on disk (DiskRing.h).
//===----------------------------------------------------------------------===//
#include "base/Types.h"
#include "cuda/CudaDevice.h"
#include "pcrt/disk.h"

#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

void CudaDevice::write(int64_t offset, const void *from, int64_t bytes) {
  if (offset < PCRT_HOST)
    staging.write(arena + offset, from, bytes);
  else if (offset >= PCRT_DISK)
    ring->disk.write(offset - PCRT_DISK, from, bytes);
  else
    memcpy(hostArena + (offset - PCRT_HOST), from, size_t(bytes));
}

void CudaDevice::read(void *to, int64_t offset, int64_t bytes) {
  if (offset < PCRT_HOST)
    staging.read(to, arena + offset, bytes);
  else if (offset >= PCRT_DISK)
    ring->disk.read(to, offset - PCRT_DISK, bytes);
  else
    memcpy(to, hostArena + (offset - PCRT_HOST), size_t(bytes));
}

void CudaDevice::openHostArenas(pcrt_context &context) {
  if (program.abi.host_bytes)
    hostArena = static_cast<char *>(session.pinned(size_t(program.abi.host_bytes)));
  if (!program.abi.disk_bytes)
    return;
  if (context.comm.rank() == 0)
    DiskArena::warnAbout(context.scratch);
  ring.emplace(session, context.scratch, program.abi.disk_bytes, hostArena + program.abi.host_bytes - PCRT_DISK_RING);
}

/// Enqueues a copy between the arenas. The address in the other one is PCRT_HOST or PCRT_DISK bytes or more after the
/// device's arena.
Result CudaDevice::carry(const pcrt_move_desc &move, const void *in, void *out, Stream stream) {
  const bool isOut = move.reduction & PCRT_CARRY_OUT;
  auto at = int64_t(reinterpret_cast<uintptr_t>(isOut ? out : in) - reinterpret_cast<uintptr_t>(arena));
  if (!(move.reduction & PCRT_CARRY_HOST))
    return ring->enqueue(move, isOut ? in : out, at - PCRT_DISK, stream);
  char *onHost = hostArena + (at - PCRT_HOST);
  const auto bytes = size_t(move.outer * elementBytes(move.dtype));
  return isOut ? session.driver.cuMemcpyDtoHAsync_v2(onHost, addressOf(in), bytes, stream)
               : session.driver.cuMemcpyHtoDAsync_v2(addressOf(out), onHost, bytes, stream);
}
