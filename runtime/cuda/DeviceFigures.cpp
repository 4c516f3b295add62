//===- DeviceFigures.cpp - The device in a run's summary and trace --------===//
// Reports which device, libraries and choices a run used, so that two runs can be compared, and the times of a traced
// step.
//===----------------------------------------------------------------------===//
#include "cuda/CudaDevice.h"

using namespace pcrt;
using namespace pcrt::cuda;

Json CudaDevice::figures() {
  size_t unused = 0, total = 0;
  session.check(session.driver.cuMemGetInfo_v2(&unused, &total), "ask for the free memory");
  Json figures = {{"name", session.name},
                  {"driver", describeDriverVersion(session.library.version)},
                  {"arena_bytes", arenaMemory.mappedBytes()},
                  {"bytes_in_use", int64_t(total - unused)},
                  {"bytes", int64_t(total)}};
  if (program.abi.num_kernels)
    figures["kernels"] = describeImages(&kernels.image(), 1);
  if (products) {
    figures["cublaslt"] = describeCublasVersion(products->library().version);
    figures["products_timed"] = products->timed();
    figures["epilogues_apart"] = products->apart();
    figures["products_beside_moves"] = products->besideMoves();
  }
  if (attentions) {
    if (attentions->library().version)
      figures["cudnn"] = describeCudnnVersion(attentions->library().version);
    figures["attention_workspace_bytes"] = attentions->workspaceBytes();
    if (!attentions->whyOwn().empty())
      figures["own_attention"] = attentions->whyOwn();
  }
  if (comm)
    figures["moves"] = comm->name();
  if (comm && comm->communicators()) {
    figures["communicators"] = comm->communicators();
    figures["staging_bytes"] = comm->stagingMemoryBytes();
  }
  figures["graph"] = step.graph != nullptr;
  return figures;
}

/// Adds the times of a traced step to the profile. The end of the step aligns the device's clock with the host's.
void CudaDevice::bookTimes(pcrt_context &context) {
  if (timed.empty())
    return;
  int64_t now = nanoseconds();
  auto before = [&](Event event) {
    float milliseconds = 0;
    session.check(session.driver.cuEventElapsedTime_v2(&milliseconds, event, stepEnd), "read the times of the step");
    return now - int64_t(double(milliseconds) * 1e6);
  };
  for (const Timed &times : timed)
    context.profile.add(times.call, times.index, before(times.start), before(times.end));
  timed.clear();
}
