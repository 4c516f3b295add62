//===- Kernels.cpp - The generated kernels of a program on a CUDA device --===//
// Compatibility follows the CUDA C++ Programming Guide: a cubin runs on later minor versions of its major version, PTX
// on all later architectures, and an architecture-specific image ('a') on exactly one.
//===----------------------------------------------------------------------===//
#include "cuda/Kernels.h"
#include "base/Failure.h"

#include <algorithm>

using namespace pcrt;
using namespace pcrt::cuda;

const pcrt_image *pcrt::cuda::chooseImage(const pcrt_image *images, int count, int arch, bool standin) {
  const pcrt_image *best = nullptr;
  auto rank = [&](const pcrt_image &image) -> int {
    if (standin)
      return image.kind == PCRT_HOST_IMAGE ? 1 : 0;
    if (image.kind == PCRT_HOST_IMAGE || image.arch > arch || (image.arch_specific && image.arch != arch))
      return 0;
    // The newest cubin is the best, and its 'a' variant is better still.
    if (image.kind == PCRT_CUBIN)
      return image.arch / 10 == arch / 10 ? 10000 + 2 * image.arch + image.arch_specific : 0;
    return 2 * image.arch + image.arch_specific;
  };
  for (int i = 0; i < count; ++i)
    if (rank(images[i]) > (best ? rank(*best) : 0))
      best = &images[i];
  return best;
}

std::string pcrt::cuda::describeImages(const pcrt_image *images, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const pcrt_image &image = images[i];
    std::string number = std::to_string(image.arch) + (image.arch_specific ? "a" : "");
    text += (i ? ", " : "") + (image.kind == PCRT_CUBIN ? "sm_" + number
                               : image.kind == PCRT_PTX ? "compute_" + number + " (PTX)"
                                                        : std::string("the stand-in"));
  }
  return text.empty() ? "nothing" : text;
}

Kernels::Kernels(Session &session, const pcrt_program &program) : session(session), program(program) {
  if (program.num_kernels == 0)
    return;
  chosen = chooseImage(program.images, program.num_images, session.arch, session.standin);
  if (!chosen)
    fail(PCRT_RESOURCE, "this program has kernels for " + describeImages(program.images, program.num_images) +
                            ", but not for " + session.name + "; compile it with --arch=sm_" +
                            std::to_string(session.arch));
  char log[4096] = "";
  int options[] = {JitErrorLog, JitErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  Result result = session.driver.cuModuleLoadDataEx(&module, chosen->data, 2, options, values);
  if (result == ErrorNoBinaryForDevice || (result != Success && log[0]))
    fail(PCRT_INTERNAL, session.name + " cannot load the kernels for " + describeImages(chosen, 1) + ": " +
                            session.describe(result) + (log[0] ? "; " : "") + log);
  session.check(result, "load the kernels for " + describeImages(chosen, 1));
  int most = 0, optin = 0;
  session.check(session.driver.cuDeviceGetAttribute(&optin, AttributeSharedMemoryOptin, session.device),
                "ask for the shared memory");
  for (int i = 0; i < program.num_kernels; ++i) {
    const pcrt_device_kernel &kernel = program.device_kernels[i];
    if (!kernel.entry[0]) { // the CPU's, for checks
      functions.push_back(nullptr);
      continue;
    }
    std::string called = "'" + std::string(program.kernels[i].name) + "' (" + kernel.entry + ")";
    Function function = nullptr;
    session.check(session.driver.cuModuleGetFunction(&function, module, kernel.entry), "find kernel " + called);
    if (kernel.shared_bytes > optin)
      fail(PCRT_INTERNAL, "kernel " + called + " needs " + std::to_string(kernel.shared_bytes) +
                              " bytes of shared memory, but a block of " + session.name + " has " +
                              std::to_string(optin));
    if (kernel.shared_bytes > 48 << 10)
      session.check(session.driver.cuFuncSetAttribute(function, FunctionMaxDynamicShared, int(kernel.shared_bytes)),
                    "give shared memory to kernel " + called);
    functions.push_back(function);
    most = std::max(most, kernel.num_args);
  }
  parameters.resize(most);
}

Kernels::~Kernels() {
  if (module)
    session.driver.cuModuleUnload(module);
}

Result Kernels::launch(int index, void *const *args) {
  const pcrt_device_kernel &kernel = program.device_kernels[index];
  for (int i = 0; i < kernel.num_args; ++i)
    parameters[i] = const_cast<void **>(&args[i]);
  return session.driver.cuLaunchKernel(functions[index], kernel.grid[0], kernel.grid[1], kernel.grid[2],
                                       kernel.block[0], kernel.block[1], kernel.block[2], unsigned(kernel.shared_bytes),
                                       session.compute, parameters.data(), nullptr);
}
