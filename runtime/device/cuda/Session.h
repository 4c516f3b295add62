//===- Session.h - one process's use of one CUDA device -------------------===//
//
// The driver's table with the device's context current, and what every part of
// the CUDA device needs of it: checked calls, pinned memory, events.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_CUDA_SESSION_H
#define PCRT_DEVICE_CUDA_SESSION_H

#include "device/cuda/Libraries.h"
#include "pcrt/pcrt.h"

#include <string>
#include <vector>

namespace pcrt::cuda {

/// Whether an environment variable is set to something else than 0; `unset` where it is not set.
bool switchedOn(const char *variable, bool unset);

class Session {
public:
  /// Opens device `ordinal` of the process. Throws PCRT_RESOURCE where there is no driver or no such device.
  explicit Session(int ordinal);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  Driver driver;
  Opened library;
  Ordinal device = 0;
  Context context = nullptr;
  std::string name;       ///< "NVIDIA H200 (sm_90)"
  std::string deviceName; ///< "NVIDIA H200"
  int arch = 0;           ///< 90: sm_90.
  int multiprocessors = 0;
  bool standin = false;     ///< Not a GPU: the driver is a stand-in.
  Stream compute = nullptr; ///< The stream of everything but moves.

  /// Throws unless `result` is success: PCRT_RESOURCE where memory ran out, else PCRT_INTERNAL. `doing` completes
  /// "cannot
  /// ...".
  void check(Result result, const std::string &doing) const;
  /// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  std::string describe(Result result) const;

  /// Page-locked host memory, zeros; lives as long as the session.
  void *pinned(size_t bytes);
  /// Streams and events that live as long as the session.
  Stream makeStream();
  Event makeEvent(bool timed = false);

  /// Waits for everything on the compute stream.
  void synchronize() const;

private:
  std::vector<void *> hostMemory;
  std::vector<Stream> streams;
  std::vector<Event> events;
};

} // namespace pcrt::cuda

#endif // PCRT_DEVICE_CUDA_SESSION_H
