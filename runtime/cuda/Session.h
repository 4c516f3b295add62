//===- Session.h - One process's use of one CUDA device -------------------===//
// The driver's table with the device's context current, and what every part of the CUDA device needs of it: checked
// calls, pinned memory, events.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_SESSION_H
#define PCRT_CUDA_SESSION_H

#include "comm/Environment.h"
#include "cuda/Libraries.h"
#include "pcrt/pcrt.h"

#include <string>
#include <vector>

namespace pcrt::cuda {

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
  /// Not a GPU: the driver is a stand-in. Null on a GPU.
  const pc_standin_functions *standin = nullptr;
  Stream compute = nullptr; ///< The stream of everything but moves.
  /// Hardware queues of this process (CUDA_DEVICE_MAX_CONNECTIONS, 32 unless it is set): of streams that share one, one
  /// may hold up the other. Which do is up to the driver; the stand-in's first streams do not.
  int queues = 0;

  /// What a stand-in is told; nothing happens on a GPU. `pc_standin_functions` says what these mean.
  void label(const char *source) const {
    if (standin && standin->label)
      standin->label(source);
  }
  void nameMemory(const void *begin, int64_t bytes, const std::string &as) const {
    if (standin && standin->name_memory)
      standin->name_memory(begin, bytes, as.c_str());
  }
  void polled(const volatile void *begin, int64_t bytes) const {
    if (standin && standin->polled)
      standin->polled(const_cast<const void *>(begin), bytes);
  }

  /// Throws unless `result` is success: PCRT_RESOURCE where memory ran out, else PCRT_INTERNAL. `doing` completes
  /// "cannot
  /// ...".
  void check(Result result, const std::string &doing) const;
  /// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  std::string describe(Result result) const;

  /// Page-locked host memory, zeros; lives as long as the session.
  void *pinned(size_t bytes);
  /// Streams and events that live as long as the session.
  Stream makeStream() { return makeStream(0); }
  /// A stream of the highest priority, for moves: computation waits for them.
  Stream makeMoveStream();
  /// Makes the next `count` of these now, before libraries make streams of their own.
  void reserveMoveStreams(int count);
  int numStreams() const { return int(streams.size()); }
  Event makeEvent(bool timed = false);

  /// Waits for everything on the compute stream.
  void synchronize() const;

private:
  Stream makeStream(int priority);

  std::vector<void *> hostMemory;
  std::vector<Stream> streams, reserved;
  std::vector<Event> events;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_SESSION_H
