//===- Driver.cpp - libpc_ptx_reader.so: a driver that reads PTX ----------===//
// Takes the place of the stand-in in PCRT_CUDA_LIBRARIES=standin:FILE. The functions below load and launch kernels from
// the PTX in the file that PC_PTX names, instead of the host image. The loader finds all others in the stand-in, which
// this library is linked to. A fault ends the process with exit code 5 and its place.
//===----------------------------------------------------------------------===//
#include "Block.h"
#include "standin/standin.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <signal.h>
#include <sstream>
#include <unistd.h>

using namespace pc::ptx;

namespace {

/// Values of CUresult and CUjit_option in cuda.h.
enum { Success = 0, InvalidValue = 1, InvalidPtx = 218, NotFound = 500 };
enum { ErrorLogBuffer = 5, ErrorLogBytes = 6 };
enum { ExitFault = 5 };

/// The module of the process: programs have one, and each rank loads it.
struct Loaded {
  std::mutex mutex;
  Module module;
  bool isLoaded = false;
  std::set<std::string> run;
} loaded;

[[noreturn]] void end(const std::string &kernel, const std::string &why) {
  fprintf(stderr, "ptx-reader: error: kernel %s, %s\n", kernel.c_str(), why.c_str());
  fflush(stderr);
  _exit(ExitFault);
}

thread_local const Kernel *runningKernel = nullptr;

/// An access of global memory outside of everything that is mapped.
void onBadAddress(int, siginfo_t *info, void *) {
  end(runningKernel->name, "line " + std::to_string(runningInstruction->line) + " (" + runningInstruction->text +
                               "): address " + std::to_string(reinterpret_cast<uintptr_t>(info->si_addr)) +
                               " is not mapped");
}

void runLaunch(const Launch &launch) {
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.run.insert(launch.kernel->name).second)
    fprintf(stderr, "ptx-reader: runs %s\n", launch.kernel->name.c_str());
  runningKernel = launch.kernel;
  struct sigaction own = {}, before;
  own.sa_sigaction = onBadAddress;
  own.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &own, &before);
  for (uint32_t z = 0; z < launch.grid[2]; ++z)
    for (uint32_t y = 0; y < launch.grid[1]; ++y)
      for (uint32_t x = 0; x < launch.grid[0]; ++x)
        try {
          Block(launch, {x, y, z}).run();
        } catch (const Fault &fault) {
          end(launch.kernel->name, "block " + std::to_string(x) + ", " + fault.text);
        }
  sigaction(SIGSEGV, &before, nullptr);
}

/// The reason why a launch is refused; empty if it is not. "Performance-Tuning Directives" of the PTX ISA.
std::string check(const Launch &launch) {
  const Kernel &kernel = *launch.kernel;
  uint64_t most = 1, threads = 1;
  for (int i = 0; i < 3; ++i) {
    most *= kernel.threads[i], threads *= launch.block[i];
    if (kernel.exactThreads && int(launch.block[i]) != kernel.threads[i])
      return "the block is not that of .reqntid";
  }
  return threads > (most ? most : 1024) ? "more threads in a block than .maxntid says" : "";
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuModuleLoadDataEx(void **module, const void *, unsigned count, int *options, void **values) {
  std::lock_guard<std::mutex> lock(loaded.mutex);
  *module = &loaded;
  if (loaded.isLoaded)
    return Success;
  std::string why;
  try {
    const char *file = getenv("PC_PTX");
    std::ifstream stream(file ? file : "");
    if (!stream)
      throw Fault{"PC_PTX does not name a file that can be read"};
    std::stringstream text;
    text << stream.rdbuf();
    loaded.module = parse(text.str());
    loaded.isLoaded = true;
    return Success;
  } catch (const Fault &fault) {
    why = "ptx-reader: " + fault.text;
  }
  const int *buffer = std::find(options, options + count, int(ErrorLogBuffer));
  const int *bytes = std::find(options, options + count, int(ErrorLogBytes));
  if (buffer != options + count && bytes != options + count)
    snprintf(static_cast<char *>(values[buffer - options]), size_t(values[bytes - options]), "%s", why.c_str());
  return InvalidPtx;
}

EXPORT int cuModuleUnload(void *) { return Success; }

EXPORT int cuModuleGetFunction(void **function, void *, const char *name) {
  auto found = loaded.module.kernels.find(name);
  if (found == loaded.module.kernels.end())
    return NotFound;
  *function = found->second.get();
  return Success;
}

EXPORT int cuFuncGetAttribute(int *value, int, void *) { return *value = 0, Success; }

EXPORT int cuFuncSetAttribute(void *, int, int) { return Success; }

EXPORT int cuLaunchKernel(void *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                          unsigned blockY, unsigned blockZ, unsigned shared, void *stream, void **parameters, void **) {
  auto *launch =
      new Launch{static_cast<Kernel *>(function), {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared, {}};
  if (std::string why = check(*launch); !why.empty()) {
    fprintf(stderr, "ptx-reader: error: kernel %s: %s\n", launch->kernel->name.c_str(), why.c_str());
    return InvalidValue;
  }
  launch->copyParameters(parameters);
  pc_standin_enqueue(
      stream, launch->kernel->name.c_str(), [](void *it) { runLaunch(*static_cast<Launch *>(it)); }, launch,
      [](void *it) { delete static_cast<Launch *>(it); }, nullptr, 0);
  return Success;
}
