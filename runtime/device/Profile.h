//===- Profile.h - The time of each kind of call in a step ----------------===//
// Every kernel, matrix product and move is timed. Times are summed by kind over the steps and, for one step, kept as
// events for a trace (--trace).
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_PROFILE_H
#define PCRT_DEVICE_PROFILE_H

#include "comm/Comm.h"
#include "pcrt/pcrt.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pcrt {

/// The name of a pcrt_task_kind: "forward", "backward" and so on.
const char *taskName(int32_t kind);

/// Writes "backward of microbatch 3, chunk 0 (stage 1)" to `text`, for messages.
void describeTask(char (&text)[96], int32_t kind, int32_t chunk, int32_t microbatch, int32_t stage);

/// Nanoseconds of a clock that never jumps, the same for all processes of a machine.
int64_t nanoseconds();

/// The times of one rank. The rank's thread uses the profile. Booking allocates nothing. Events beyond the trace's
/// capacity are dropped.
class Profile {
public:
  /// A start or wait has the name of its first move.
  enum class Call { Kernel, Gemm, Move, Start, Wait, Attention, Send, Receive, Task };

  explicit Profile(const pcrt_program &program);

  /// Books a call of entry `index` of the program's table that began at `start`, in nanoseconds(), and ends now.
  void book(Call call, int32_t index, int64_t start);

  /// Books a call whose beginning and end (nanoseconds) were measured elsewhere.
  void add(Call call, int32_t index, int64_t start, int64_t end);

  /// Says that the following calls, until endTask, belong to a task of a pipeline's schedule (pcrt_task).
  void task(int32_t kind, int32_t chunk, int32_t microbatch);
  void endTask();

  /// A task as the index of an event: 3 bits of kind, 10 of the chunk, the rest of the microbatch.
  static int32_t packTask(int32_t kind, int32_t chunk, int32_t microbatch) {
    return kind | std::min(chunk, 1023) << 3 | microbatch << 13;
  }

  /// While it is paused, calls are neither counted nor kept.
  void pause(bool pauses) { paused = pauses; }

  /// From now on, keeps the events of calls, at most `capacity` of them.
  void startTrace(int64_t capacity);
  bool tracing() const { return events != nullptr; }

  /// Writes the events of all ranks as a trace that Chrome and Perfetto show: calls, and the tasks of a pipeline above
  /// them. `programOf` gives the tables of a rank. All ranks call it; rank 0 writes.
  void writeTrace(const std::string &path, Comm &comm, const std::function<const pcrt_program &(int)> &programOf) const;

  /// The sum of the calls of one kind.
  struct Kind {
    std::string name; ///< A kernel's kind, "gemm", "move" (also starts and waits), "attention" or "message".
    int64_t calls = 0, nanoseconds = 0;
  };
  const std::vector<Kind> &kinds() const { return all; }
  /// The time in moves and messages so far, which includes waiting for other ranks.
  int64_t nanosecondsInMoves() const {
    return all[moveKind].nanoseconds + (messageKind < 0 ? 0 : all[messageKind].nanoseconds);
  }

private:
  /// A call with its begin and end, for the trace.
  struct Event {
    int32_t call, index; ///< call < 0: no event.
    int64_t start, end;
  };

  int kindNamed(const char *name);

  std::vector<Kind> all;
  std::vector<int> kindOfKernel;
  int gemmKind, moveKind, attentionKind, messageKind = -1;
  bool paused = false;
  int32_t currentTask = -1; ///< The result of packTask; -1: none.
  int64_t taskStart = 0;
  std::unique_ptr<Event[]> events;
  int64_t numEvents = 0, capacity = 0;
};

} // namespace pcrt

#endif // PCRT_DEVICE_PROFILE_H
