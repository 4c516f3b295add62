//===- HostCopies.cpp - Copies of the state beside a step -----------------===//
// Copies run on a stream of their own. The step that follows is enqueued call by call, because its first kernel that
// changes a parameter or a state waits for them.
//===----------------------------------------------------------------------===//
#include "comm/Collective.h"
#include "cuda/CudaDevice.h"

#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

/// Kernels of the optimizer are the first ones that change parameters and states.
void CudaDevice::findUpdates() {
  for (int i = 0; i < program.abi.num_kernels; ++i)
    updates.push_back(!strcmp(program.abi.kernels[i].kind, "optimizer"));
}

/// The launcher's memory is not page-locked yet.
void CudaDevice::allocateAfterArena(pcrt_context &context) {
  if (!context.afterArena)
    return;
  requireOk(context.comm, context.comm.allocateArena(context.afterArena, &keptMemory));
  onAllRanks(context.comm, [&] {
    session.check(session.driver.cuMemHostRegister_v2(keptMemory, size_t(context.afterArena), 0),
                  "lock the memory of --snapshot in place");
  });
}

char *CudaDevice::hostMemory(int64_t bytes) { return static_cast<char *>(session.pinned(size_t(bytes))); }

/// Nothing runs between two steps, so the copies wait for nothing. Data of other arenas is copied at once.
void CudaDevice::copyAside(const std::vector<HostCopy> &copies) {
  const Driver &driver = session.driver;
  if (!aside) {
    aside = session.makeStream();
    copied = session.makeEvent();
  }
  for (const HostCopy &copy : copies)
    if (copy.offset >= PCRT_HOST)
      read(copy.to, copy.offset, copy.bytes);
    else
      session.check(driver.cuMemcpyDtoHAsync_v2(copy.to, addressOf(arena) + copy.offset, size_t(copy.bytes), aside),
                    "copy the state");
  session.check(driver.cuEventRecord(copied, aside), "copy the state");
  copying = true;
}

void CudaDevice::waitForCopies() {
  session.check(session.driver.cuCtxSetCurrent(session.context), "use the device");
  session.check(session.driver.cuEventSynchronize(copied), "wait for a copy of the state");
}

pcrt_status CudaDevice::beforeUpdate(pcrt_context &context, Stream stream) {
  if (!copying || mode != Mode::Run || current != &step)
    return PCRT_OK;
  return done(context, session.driver.cuStreamWaitEvent(stream, copied, 0), "wait", "for a copy of the state");
}
