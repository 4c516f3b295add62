//===- Session.h - A process's use of one CUDA device ---------------------===//
// A session is the driver's table with the device's context current. It offers what every part of the CUDA device
// needs: checked calls, pinned memory, streams and events.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_SESSION_H
#define PCRT_CUDA_SESSION_H

#include "comm/Environment.h"
#include "cuda/Libraries.h"
#include "pcrt/pcrt.h"

#include <string>
#include <vector>

namespace pcrt::cuda {

/// The open device of one rank. The session owns the context, pinned memory, streams and events until it is destroyed.
/// In the thread that opens the session, the context is current; other threads make it current themselves.
class Session {
public:
  /// Opens device `ordinal` of the process. Throws PCRT_RESOURCE if there is no driver or no such device.
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
  /// The functions of the stand-in if the driver is one; null on a GPU.
  const pc_standin_functions *standin = nullptr;
  Stream compute = nullptr; ///< The stream of everything except moves.

  /// These functions pass information to a stand-in, and do nothing on a GPU. pc_standin_functions describes them.
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

  /// Throws PCRT_RESOURCE if memory ran out, and PCRT_INTERNAL for any other `result` that is not success. `doing`
  /// completes "cannot ...".
  void check(Result result, const std::string &doing) const;
  /// A result as text: "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  std::string describe(Result result) const;

  /// Page-locked host memory, filled with zeros, which lives as long as the session.
  void *pinned(size_t bytes);
  /// A stream that lives as long as the session, like those below and all events.
  Stream makeStream() { return makeStream(0); }
  /// Makes a stream of the highest priority, for moves, because computation waits for moves.
  Stream makeMoveStream();
  /// Creates the next `count` move streams now, before libraries create their own streams.
  void reserveMoveStreams(int count);
  Event makeEvent(bool timed = false);

  /// Waits for all work on the compute stream.
  void synchronize() const;

private:
  Stream makeStream(int priority);

  std::vector<void *> hostMemory;
  std::vector<Stream> streams, reserved;
  std::vector<Event> events;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_SESSION_H
