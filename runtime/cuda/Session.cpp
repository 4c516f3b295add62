//===- Session.cpp - A process's use of one CUDA device -------------------===//
// Opens the driver, retains the primary context and makes it current. The number of hardware queues is set in the
// environment before main(), because the driver reads it at its start. Streams that share a queue delay each other.
//===----------------------------------------------------------------------===//
#include "cuda/Session.h"
#include "base/Failure.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

/// Sets the variable to its largest value, 32, unless the user has set it. This happens before there are threads,
/// because threads of virtual ranks read the environment while others start.
[[maybe_unused]] static const bool queuesAreSet = [] {
  constexpr char variable[] = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char *chosen = getenv(variable);
  return chosen && *chosen ? true : setenv(variable, "32", 1) == 0;
}();

Session::Session(int ordinal) {
  load(driver, &library);
  standin = driver.pc_standin_hook ? driver.pc_standin_hook() : nullptr;
  int count = 0;
  Result result = driver.cuInit(0);
  if (result == Success)
    result = driver.cuDeviceGetCount(&count);
  if (result != Success && result != ErrorNoDevice)
    fail(PCRT_RESOURCE, "the CUDA driver (" + library.path + ") does not start: " + describe(result) +
                            "; check whether nvidia-smi works");
  if (count == 0)
    fail(PCRT_RESOURCE,
         "the CUDA driver (" + library.path +
             ") finds no device; check nvidia-smi and CUDA_VISIBLE_DEVICES, or compile with --target=cpu");
  // If there are too few devices, ranks may share them: by default on a stand-in, otherwise only if the variable
  // requests it.
  if (switchedOn("PCRT_CUDA_SHARE_DEVICE", standin))
    ordinal %= count;
  if (ordinal >= count)
    fail(PCRT_RESOURCE, "rank " + std::to_string(ordinal) +
                            " of this machine has no device of its own, because the number of devices is " +
                            std::to_string(count) + "; use one rank per device, or more machines");
  check(driver.cuDeviceGet(&device, ordinal), "get device " + std::to_string(ordinal));
  char text[256] = "";
  int major = 0, minor = 0, virtualMemory = 0;
  check(driver.cuDeviceGetName(text, sizeof text, device), "ask for the device's name");
  check(driver.cuDeviceGetAttribute(&major, AttributeMajor, device), "ask for the device's architecture");
  check(driver.cuDeviceGetAttribute(&minor, AttributeMinor, device), "ask for the device's architecture");
  check(driver.cuDeviceGetAttribute(&multiprocessors, AttributeMultiprocessors, device), "ask for the multiprocessors");
  check(driver.cuDeviceGetAttribute(&virtualMemory, AttributeVirtualMemory, device), "ask for virtual memory");
  arch = major * 10 + minor;
  deviceName = text;
  name = deviceName + " (sm_" + std::to_string(arch) + ")";
  if (!virtualMemory)
    fail(PCRT_RESOURCE, name + " does not support virtual memory management, which the arena needs");
  check(driver.cuDevicePrimaryCtxRetain(&context, device), "open " + name);
  check(driver.cuCtxSetCurrent(context), "open " + name);
  compute = makeStream();
}

Session::~Session() {
  if (!context)
    return;
  driver.cuCtxSetCurrent(context);
  driver.cuCtxSynchronize();
  for (Event event : events)
    driver.cuEventDestroy_v2(event);
  for (Stream stream : streams)
    driver.cuStreamDestroy_v2(stream);
  for (void *memory : hostMemory)
    driver.cuMemFreeHost(memory);
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

std::string Session::describe(Result result) const {
  const char *errorName = nullptr, *text = nullptr;
  driver.cuGetErrorName(result, &errorName);
  driver.cuGetErrorString(result, &text);
  return std::string(errorName ? errorName : "CUDA error " + std::to_string(result)) + (text ? ": " : "") +
         (text ? text : "");
}

void Session::check(Result result, const std::string &doing) const {
  if (result != Success)
    fail(result == ErrorOutOfMemory ? PCRT_RESOURCE : PCRT_INTERNAL,
         (name.empty() ? "CUDA" : name) + ": cannot " + doing + ": " + describe(result));
}

void *Session::pinned(size_t bytes) {
  void *memory = nullptr;
  check(driver.cuMemHostAlloc(&memory, bytes ? bytes : 1, 0),
        "lock " + std::to_string(bytes) + " bytes of host memory in place");
  hostMemory.push_back(memory);
  memset(memory, 0, bytes);
  return memory;
}

Stream Session::makeStream(int priority) {
  Stream stream = nullptr;
  check(driver.cuStreamCreateWithPriority(&stream, StreamNonBlocking, priority), "make a stream");
  streams.push_back(stream);
  return stream;
}

Stream Session::makeMoveStream() {
  if (reserved.empty())
    reserveMoveStreams(1);
  Stream stream = reserved.front();
  reserved.erase(reserved.begin());
  return stream;
}

void Session::reserveMoveStreams(int count) {
  int least = 0, greatest = 0;
  check(driver.cuCtxGetStreamPriorityRange(&least, &greatest), "ask for the priorities of streams");
  for (int i = 0; i < count; ++i)
    reserved.push_back(makeStream(greatest));
}

Event Session::makeEvent(bool timed) {
  Event event = nullptr;
  check(driver.cuEventCreate(&event, timed ? 0 : EventDisableTiming), "make an event");
  events.push_back(event);
  return event;
}

void Session::synchronize() const { check(driver.cuStreamSynchronize(compute), "wait for the device"); }
