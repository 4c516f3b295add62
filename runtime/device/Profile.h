//===- Profile.h - Where the time of a step goes --------------------------===//
// Every kernel, matrix product and move is timed: summed by kind over the steps, and, for one step, kept as events for
// a trace (--trace).
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

/// "forward", "backward", ... of a pcrt_task_kind.
const char *taskName(int32_t kind);

/// Writes "backward of microbatch 3, chunk 0 (stage 1)" to `text`, for messages.
void describeTask(char (&text)[96], int32_t kind, int32_t chunk, int32_t microbatch, int32_t stage);

/// Nanoseconds of a clock that never jumps, the same for all processes of a machine.
int64_t nanoseconds();

class Profile {
public:
  enum class Call { Kernel, Gemm, Move, Start, Wait, Attention, Send, Receive, Task };
  ///< A start or wait is named by its first move.

  explicit Profile(const pcrt_program &program);

  /// Books a call of entry `index` of the program's table that began at `start`. Allocates nothing.
  void book(Call call, int32_t index, int64_t start);

  /// Books a call whose beginning and end (nanoseconds) were measured elsewhere.
  void add(Call call, int32_t index, int64_t start, int64_t end);

  /// The following calls belong to a task of a pipeline's schedule (pcrt_task), until endTask.
  void task(int32_t kind, int32_t chunk, int32_t microbatch);
  void endTask();

  /// A task as the index of an event: 3 bits of kind, 10 of the chunk, the rest of the microbatch.
  static int32_t packTask(int32_t kind, int32_t chunk, int32_t microbatch) {
    return kind | std::min(chunk, 1023) << 3 | microbatch << 13;
  }

  /// What is called while it pauses is neither counted nor kept.
  void pause(bool pauses) { paused = pauses; }

  /// Keeps the events of the following calls, at most `capacity` of them.
  void startTrace(int64_t capacity);
  bool tracing() const { return events != nullptr; }

  /// Writes the events of all ranks as a trace that Chrome and Perfetto show: calls, and the tasks of a pipeline above
  /// them. `programOf` gives the tables of a rank. All ranks call it; rank 0 writes.
  void writeTrace(const std::string &path, Comm &comm, const std::function<const pcrt_program &(int)> &programOf) const;

  struct Kind {
    std::string name; ///< A kernel's kind, "gemm", "move" (starts and waits too), "attention" or "message".
    int64_t calls = 0, nanoseconds = 0;
  };
  const std::vector<Kind> &kinds() const { return all; }
  /// In moves and messages so far: waiting for other ranks, and moving.
  int64_t nanosecondsInMoves() const {
    return all[moveKind].nanoseconds + (messageKind < 0 ? 0 : all[messageKind].nanoseconds);
  }

private:
  struct Event {
    int32_t call, index; ///< call < 0: no event.
    int64_t start, end;
  };

  int kindNamed(const char *name);

  std::vector<Kind> all;
  std::vector<int> kindOfKernel;
  int gemmKind, moveKind, attentionKind, messageKind = -1;
  bool paused = false;
  int32_t currentTask = -1; ///< As the index of its event.
  int64_t taskStart = 0;
  std::unique_ptr<Event[]> events;
  int64_t numEvents = 0, capacity = 0;
};

} // namespace pcrt

#endif // PCRT_DEVICE_PROFILE_H
