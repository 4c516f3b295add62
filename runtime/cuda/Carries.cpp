//===- Carries.cpp - The arena in memory of the host ----------------------===//
// Values that are offloaded from the device are in page-locked memory, from which the copy engines read and write.
//===----------------------------------------------------------------------===//
#include "base/Types.h"
#include "cuda/CudaDevice.h"

#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

void CudaDevice::write(int64_t offset, const void *from, int64_t bytes) {
  if (offset < PCRT_HOST)
    staging.write(arena + offset, from, bytes);
  else
    memcpy(hostArena + (offset - PCRT_HOST), from, size_t(bytes));
}

void CudaDevice::read(void *to, int64_t offset, int64_t bytes) {
  if (offset < PCRT_HOST)
    staging.read(to, arena + offset, bytes);
  else
    memcpy(to, hostArena + (offset - PCRT_HOST), size_t(bytes));
}

/// Enqueues a copy between the arenas. The address in the host's is PCRT_HOST or more after the device's arena.
Result CudaDevice::carry(const pcrt_move_desc &move, const void *in, void *out, Stream stream) {
  const bool isOut = move.reduction & PCRT_CARRY_OUT;
  auto at = reinterpret_cast<uintptr_t>(isOut ? out : in) - reinterpret_cast<uintptr_t>(arena);
  char *onHost = hostArena + (int64_t(at) - PCRT_HOST);
  const auto bytes = size_t(move.outer * elementBytes(move.dtype));
  return isOut ? session.driver.cuMemcpyDtoHAsync_v2(onHost, addressOf(in), bytes, stream)
               : session.driver.cuMemcpyHtoDAsync_v2(addressOf(out), onHost, bytes, stream);
}
