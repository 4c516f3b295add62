//===- Session.cpp - one process's use of one CUDA device -----------------===//
#include "device/cuda/Session.h"
#include "core/Failure.h"

#include <cstdlib>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

bool pcrt::cuda::switchedOn(const char *variable, bool unset) {
  const char *value = getenv(variable);
  return value && *value ? strcmp(value, "0") != 0 : unset;
}

Session::Session(int ordinal) {
  load(driver, &library);
  standin = driver.standinAbi != nullptr;
  int count = 0;
  Result result = driver.init(0);
  if (result == Success)
    result = driver.deviceGetCount(&count);
  if (result != Success && result != ErrorNoDevice)
    fail(PCRT_RESOURCE, "the CUDA driver (" + library.path + ") does not start: " + describe(result) +
                            "; see whether nvidia-smi works");
  if (count == 0)
    fail(PCRT_RESOURCE, "the CUDA driver (" + library.path +
                            ") finds no device; see nvidia-smi and CUDA_VISIBLE_DEVICES, or compile with --target=cpu");
  // A stand-in is a device for every process; and NCCL can be tested with ranks that share one.
  if (switchedOn("PCRT_CUDA_SHARE_DEVICE", standin))
    ordinal %= count;
  if (ordinal >= count)
    fail(PCRT_RESOURCE, "rank " + std::to_string(ordinal) + " of this machine has no device of its own: there are " +
                            std::to_string(count) + "; use as many ranks as devices, or more machines");
  check(driver.deviceGet(&device, ordinal), "get device " + std::to_string(ordinal));
  char text[256] = "";
  int major = 0, minor = 0, virtualMemory = 0;
  check(driver.deviceGetName(text, sizeof text, device), "ask for the device's name");
  check(driver.deviceGetAttribute(&major, AttributeMajor, device), "ask for the device's architecture");
  check(driver.deviceGetAttribute(&minor, AttributeMinor, device), "ask for the device's architecture");
  check(driver.deviceGetAttribute(&multiprocessors, AttributeMultiprocessors, device), "ask for the multiprocessors");
  check(driver.deviceGetAttribute(&virtualMemory, AttributeVirtualMemory, device), "ask for virtual memory");
  arch = major * 10 + minor;
  deviceName = text;
  name = deviceName + " (sm_" + std::to_string(arch) + ")";
  if (!virtualMemory)
    fail(PCRT_RESOURCE, name + " has no virtual memory management, which the arena needs");
  check(driver.primaryContextRetain(&context, device), "open " + name);
  check(driver.contextSetCurrent(context), "open " + name);
  compute = makeStream();
}

Session::~Session() {
  if (!context)
    return;
  driver.contextSetCurrent(context);
  driver.contextSynchronize();
  for (Event event : events)
    driver.eventDestroy(event);
  for (Stream stream : streams)
    driver.streamDestroy(stream);
  for (void *memory : hostMemory)
    driver.memFreeHost(memory);
  driver.primaryContextRelease(device);
}

std::string Session::describe(Result result) const {
  const char *errorName = nullptr, *text = nullptr;
  driver.getErrorName(result, &errorName);
  driver.getErrorString(result, &text);
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
  check(driver.memHostAlloc(&memory, bytes ? bytes : 1, 0),
        "lock " + std::to_string(bytes) + " bytes of host memory in place");
  hostMemory.push_back(memory);
  memset(memory, 0, bytes);
  return memory;
}

Stream Session::makeStream() {
  Stream stream = nullptr;
  check(driver.streamCreate(&stream, StreamNonBlocking, 0), "make a stream");
  streams.push_back(stream);
  return stream;
}

Event Session::makeEvent(bool timed) {
  Event event = nullptr;
  check(driver.eventCreate(&event, timed ? 0 : EventDisableTiming), "make an event");
  events.push_back(event);
  return event;
}

void Session::synchronize() const { check(driver.streamSynchronize(compute), "wait for the device"); }
