//===- PlanWithoutDevice.cpp - Plans of cuDNN on machines without a GPU ---===//
// cuDNN asks the loader for libcuda.so.1 by name, so loading the idle driver first under that name satisfies it.
//===----------------------------------------------------------------------===//
#include "cuda/PlanWithoutDevice.h"
#include "base/Failure.h"
#include "cuda/AttentionPlan.h"
#include "cuda/Libraries.h"

#include <dlfcn.h>

using namespace pcrt;
using namespace pcrt::cuda;

struct PlanWithoutDevice::State {
  Cudnn dnn;
  std::string version;
  std::unique_ptr<AttentionPlanner> planner;
};

PlanWithoutDevice::PlanWithoutDevice(std::unique_ptr<State> state) : state(std::move(state)) {}
PlanWithoutDevice::~PlanWithoutDevice() = default;

std::unique_ptr<PlanWithoutDevice> PlanWithoutDevice::open(int arch, const std::string &idleDriver,
                                                           std::string *error) {
  std::string properties = deviceProperties(arch);
  if (properties.empty()) {
    *error = "no device of architecture sm_" + std::to_string(arch) + " is known";
    return nullptr;
  }
  auto state = std::make_unique<State>();
  try {
    Opened opened;
    load(state->dnn, &opened);
    state->version = describeCudnnVersion(opened.version);
  } catch (const Failure &failure) {
    *error = failure.message;
    return nullptr;
  }
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) && !dlopen(idleDriver.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    *error = std::string("cannot load a driver for cuDNN: ") + dlerror();
    return nullptr;
  }
  state->planner = std::make_unique<AttentionPlanner>(state->dnn, properties);
  return std::unique_ptr<PlanWithoutDevice>(new PlanWithoutDevice(std::move(state)));
}

std::string PlanWithoutDevice::plan(const pcrt_attention_desc &desc, bool deterministic, int64_t *workspaceBytes) {
  AttentionPlan plan;
  std::string error = state->planner->build(desc, deterministic, -1, &plan);
  if (!error.empty())
    return error;
  *workspaceBytes = plan.workspaceBytes;
  state->dnn.cudnnBackendDestroyDescriptor(plan.descriptor);
  return "";
}

const std::string &PlanWithoutDevice::version() const { return state->version; }
